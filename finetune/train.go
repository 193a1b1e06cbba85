package finetune

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"slices"

	"spillway/checkpoint"
	"spillway/eventlog"
	"spillway/executor"
	"spillway/monitor"
	"spillway/plan"
	"spillway/recipe"
	"spillway/trace"
	"spillway/train"
)

// Train takes the steps and gives what came of them. When ctx is done it finishes the step at
// hand, saves and returns; while weights are loaded, it ends with the context's error.
func (r *Run) Train(ctx context.Context) (result Result, err error) {
	c, out := r.trainConfig(), r.Recipe.Output
	if r.o.Notice == nil {
		r.o.Notice = func(string) {}
	}
	log, err := eventlog.OpenLines(out.Log, Columns)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	timeline, err := trace.CreateChrome(out.Timeline)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, timeline.Close()) }()
	if c.Timeline = r.o.Timeline; timeline != nil {
		c.Timeline = func(step int64, events []trace.Event) {
			if timeline.Iteration == 0 {
				timeline.Write(step, events)
			}
		}
	}
	var recorder *monitor.Recorder
	if !r.o.NoSave {
		recorder = r.record(&c)
	}
	var profile *eventlog.Profile
	if r.o.Profile {
		c.Profile = func(step int64, events []trace.Event, ops []executor.OpTime) {
			p := monitor.ProfileOf(r.Job.Plan, r.Job.Site(), events, ops)
			p.Step, profile = step, &p
			recorder.Profile(p)
		}
	}
	c.Report = func(report train.Report) {
		r.Monitor.Report(report)
		it := recorder.Report(report, r.Monitor.memory.Driver)
		it.Resident = r.Monitor.memory.Resident
		log.Add(it, func() []string { return Row(cmp.Or(recorder.ID(), r.Model.Name), it) })
		if r.o.Report != nil {
			r.o.Report(report)
		}
	}
	r.Monitor.Start()
	r.Job.Loading = func(done, total int64) error {
		if r.o.Progress != nil {
			r.o.Progress("loading weights", done, total)
		}
		return ctx.Err() // no step has begun
	}
	done, err := train.Run(ctx, r.Job, r.Corpus.Train, c)
	recorder.Close(done, err)
	if err = r.rescued(err); err != nil {
		return result, err
	}
	result = r.Monitor.Result(done)
	result.Profile = profile
	if result.Steps >= trustedSteps && result.ShareOfRoofline > tooFast && !inCaches(r.Job.Plan) {
		result.Notices = append(slices.Clip(result.Notices), r.distrustRates(result.ShareOfRoofline))
	}
	result.Data, result.Epochs, result.WarmupSteps = &r.Corpus.Summary, r.Corpus.Epochs(), c.Schedule.Warmup
	return result, nil
}

// rescued writes the recipe next to a last checkpoint that had to be saved elsewhere, so that it is resumed as any run.
func (r *Run) rescued(err error) error {
	var elsewhere *train.SavedElsewhereError
	if errors.As(err, &elsewhere) {
		return errors.Join(err, r.Recipe.WriteRun(filepath.Dir(elsewhere.Path)))
	}
	return err
}

// trainConfig is what the recipe says of the loop.
func (r *Run) trainConfig() train.Config {
	t, e, out := r.Recipe.Training, r.Recipe.Eval, r.Recipe.Output
	c := train.Config{
		Iterations: r.Corpus.Steps, Schedule: t.Scheduler, LossScale: t.LossScale, Seed: t.Seed, JournalEvery: out.JournalEvery, AllowChanges: out.AllowChanges,
		Notice: r.o.Notice, TraceLast: r.o.TraceLast,
	}
	c.Schedule.Warmup = t.Warmup(r.Corpus.Steps)
	if !r.o.NoSave {
		c.Started = func(int64) error { return r.Recipe.WriteRun(r.out) }
		c.Save = &train.Save{Dir: checkpoint.Dir{Path: r.out, Keep: out.Keep}, Every: out.SaveSteps, Claimed: true}
	}
	if r.Corpus.Eval != nil {
		c.Evaluate = &train.Evaluation{Every: e.Steps, Feed: r.Corpus.Eval, Batches: e.Batches, Patience: e.Patience, KeepBest: e.KeepBest || e.Patience > 0}
	}
	return c
}

// distrustRates has the rates of this computer measured again, after steps that were faster than they allow, and
// says so.
func (r *Run) distrustRates(shareOfRoofline float64) string {
	then := "are measured again next time"
	if err := r.Rig.Forget(); err != nil {
		then = fmt.Sprintf("spillway devices --calibrate measures them again (%v)", err)
	}
	return fmt.Sprintf("steps took %.0f%% of the time that the rates of this computer allow at least: those were measured while it was busy, and %s", 100/shareOfRoofline, then)
}

// record has a run recorded in the event log of its folder, from its first step on. What
// the hooks of c did before they still do.
func (r *Run) record(c *train.Config) *monitor.Recorder {
	recorder := new(monitor.Recorder)
	started, timeline := c.Started, c.Timeline
	c.Started = func(done int64) error {
		if err := started(done); err != nil {
			return err
		}
		o := monitor.RecordOptions{Settings: r.settings(), Program: r.o.Program, Done: done, Steps: r.Corpus.Steps, SaveEvery: r.Recipe.Output.SaveSteps, Keep: int64(r.Recipe.Output.Keep), Notice: r.o.Notice, Cache: r.o.Rig.Cache}
		o.Alert = func(a eventlog.Alert) {
			r.o.Notice(a.String())
			if r.o.Alert != nil {
				r.o.Alert(a)
			}
		}
		recorder.Begin(r.Job, r.out, o)
		return nil
	}
	c.Timeline = func(step int64, events []trace.Event) {
		recorder.Timeline(step, events)
		if timeline != nil {
			timeline(step, events)
		}
	}
	c.TraceNext, c.Saved = recorder.TraceNext, recorder.Saved
	return recorder
}

// settings are those that were given, and where the rest of them has defaults, those that
// people compare runs by.
func (r *Run) settings() (list []eventlog.Setting) {
	usual := []string{"batch-size", "seq-len", "method", "optimizer", "learning-rate", "lr-scheduler", "seed", "dtype"}
	r.Recipe.Flags().VisitAll(func(f *flag.Flag) {
		if recipe.Aliases[f.Name] == "" && (r.Recipe.Given(f.Name) || slices.Contains(usual, f.Name)) {
			list = append(list, eventlog.Setting{Name: f.Name, Value: f.Value.String()})
		}
	})
	return list
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
