package finetune

import (
	"context"
	"errors"

	"spillway/trace"
	"spillway/train"
)

// Train takes the steps and gives what came of them. When ctx is done it finishes the step at
// hand, saves and returns.
func (r *Run) Train(ctx context.Context) (result Result, err error) {
	c := r.config
	c.Iterations = r.Corpus.Steps
	if e := r.Recipe.Eval; r.Corpus.Eval != nil {
		c.Evaluate = &train.Evaluation{Every: e.Steps, Feed: r.Corpus.Eval, Batches: e.Batches, Patience: e.Patience, KeepBest: e.KeepBest || e.Patience > 0}
	}
	log, err := openLog(r.Recipe.Output.Log, r.Model.Name)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, log.close()) }()
	timeline, err := trace.CreateChrome(r.Recipe.Output.Timeline)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, timeline.Close()) }()
	if timeline != nil {
		c.Timeline = timeline.Write
	}
	c.Report = func(report train.Report) {
		r.Monitor.Report(report)
		log.add(report, r.Monitor.memory.Resident)
		if r.o.Report != nil {
			r.o.Report(report)
		}
	}
	c.Notice = r.o.Notice
	r.Monitor.Start()
	done, err := train.Run(ctx, r.Job, r.Corpus.Train, c)
	if err != nil {
		return result, err
	}
	result = r.Monitor.Result(done)
	result.Data = &r.Corpus.Summary
	return result, nil
}
