package main

import (
	"github.com/spf13/cobra"

	"spillway/train"
)

// evalOptions are the flags about evaluation.
type evalOptions struct {
	every, batches int64
	patience       int64
	keepBest       bool
}

func evalFlags(cmd *cobra.Command) *evalOptions {
	o := &evalOptions{}
	f := cmd.Flags()
	f.Int64Var(&o.every, "eval-every", 0, "evaluate every `N` iterations (default: after the last, if there is data to evaluate on)")
	f.Int64Var(&o.batches, "eval-batches", 20, "evaluate on `N` batches at most, 0 for all of the data")
	f.Int64Var(&o.patience, "patience", 0, "stop after `N` evaluations in a row that are no better than the best, and keep the best checkpoint (default: never)")
	f.BoolVar(&o.keepBest, "keep-best", false, "save and keep the checkpoint with the best evaluation, besides the newest")
	return o
}

// check refuses flags that make no sense together.
func (o *trainOptions) checkEval() error {
	switch e := o.eval; {
	case e.every < 0 || e.batches < 0 || e.patience < 0:
		return usageErrorf("--eval-every, --eval-batches and --patience cannot be negative")
	case e.every == 0 && (e.patience > 0 || e.keepBest):
		return usageErrorf("--patience and --keep-best compare evaluations: say with --eval-every how often there are some")
	}
	return nil
}

// evaluates says whether anything is evaluated.
func (o *trainOptions) evaluates() bool {
	return o.eval.every > 0 || len(o.data.evalFiles) > 0 || o.data.evalSplit > 0
}

// evaluation for the library, nil for none.
func (o *trainOptions) evaluation(held train.Feed) *train.Evaluation {
	if held == nil {
		return nil
	}
	e := o.eval
	return &train.Evaluation{Every: e.every, Feed: held, Batches: e.batches, Patience: e.patience, KeepBest: e.keepBest || e.patience > 0}
}
