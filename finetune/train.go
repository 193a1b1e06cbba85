package finetune

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"spillway/checkpoint"
	"spillway/plan"
	"spillway/trace"
	"spillway/train"
)

// Train takes the steps and gives what came of them. When ctx is done it finishes the step at
// hand, saves and returns.
func (r *Run) Train(ctx context.Context) (result Result, err error) {
	t, e, out := r.Recipe.Training, r.Recipe.Eval, r.Recipe.Output
	c := train.Config{
		Iterations: r.Corpus.Steps, Schedule: t.Scheduler, LossScale: t.LossScale, Seed: t.Seed, JournalEvery: out.JournalEvery, AllowChanges: out.AllowChanges, Notice: r.o.Notice,
	}
	if !r.o.NoSave {
		c.Started = func() error { return r.Recipe.WriteRun(r.out) }
		c.Save = &train.Save{Dir: checkpoint.Dir{Path: r.out, Keep: out.Keep}, Every: out.SaveSteps, Claimed: true}
	}
	c.Schedule.Warmup = max(c.Schedule.Warmup, t.WarmupSteps)
	if r.Corpus.Eval != nil {
		c.Evaluate = &train.Evaluation{Every: e.Steps, Feed: r.Corpus.Eval, Batches: e.Batches, Patience: e.Patience, KeepBest: e.KeepBest || e.Patience > 0}
	}
	log, err := openLog(out.Log, r.Model.Name)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, log.close()) }()
	timeline, err := trace.CreateChrome(out.Timeline)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, timeline.Close()) }()
	if c.Timeline = r.o.Timeline; timeline != nil {
		c.Timeline = timeline.Write
	}
	c.Report = func(report train.Report) {
		r.Monitor.Report(report)
		log.add(report, r.Monitor.memory.Resident)
		if r.o.Report != nil {
			r.o.Report(report)
		}
	}
	r.Monitor.Start()
	done, err := train.Run(ctx, r.Job, r.Corpus.Train, c)
	if err != nil {
		return result, err
	}
	result = r.Monitor.Result(done)
	if result.Steps >= trustedSteps && result.ShareOfRoofline > tooFast && !inCaches(r.Job.Plan) {
		then := "are measured again next time"
		if err := r.Rig.Forget(); err != nil {
			then = fmt.Sprintf("spillway devices --calibrate measures them again (%v)", err)
		}
		result.Notices = append(slices.Clip(result.Notices), fmt.Sprintf("steps took %.0f%% of the time that the rates of this computer allow at least: those were measured while it was busy, and %s",
			100/result.ShareOfRoofline, then))
	}
	result.Data = &r.Corpus.Summary
	return result, nil
}

// inCaches says whether a plan for a CPU takes so little memory that its caches hold most of it: it
// may be faster than memory, and that says nothing of the rates.
func inCaches(p *plan.Plan) bool {
	const caches = 64 << 20
	return p.Devices[0].Context == 0 && p.Peak()[plan.OnDevice] < caches
}

// A run of so many steps that was so much faster than its roofline shows that the roofline is
// wrong.
const (
	trustedSteps = 10
	tooFast      = 1.1
)
