package train

import (
	"fmt"
	"math"
)

// Best is the best evaluation of a run.
type Best struct {
	Loss      float64 `json:"loss"`
	Iteration int64   `json:"iteration"`
	// Since is the number of evaluations after it, none of them better.
	Since int64 `json:"since,omitempty"`
}

// evaluate evaluates if it is due, at most once per iteration, and reports whether the
// result is the best so far.
func (t *Trainer) evaluate(r *Report) (best bool, err error) {
	ev := t.c.Evaluate
	if !t.evaluationDue(t.done) || t.evaluated == t.done {
		return false, nil
	}
	var loss float64
	err = t.withAverage(func() error {
		loss, err = ev.Loss(t.run.Executor())
		return err
	})
	if err != nil {
		return false, fmt.Errorf("evaluating after iteration %d: %w", t.done, err)
	}
	r.EvalLoss, r.Perplexity = loss, min(math.Exp(loss), math.MaxFloat64) // JSON has no infinity
	t.evaluated = t.done
	switch {
	case finite(loss) && (t.best == nil || loss < t.best.Loss):
		t.best = &Best{Loss: loss, Iteration: t.done}
		return true, nil
	case t.best != nil:
		t.best.Since++
	}
	return false, nil
}

// evaluationDue reports whether an iteration is followed by an evaluation.
func (t *Trainer) evaluationDue(done int64) bool {
	ev := t.c.Evaluate
	return ev != nil && done > 0 && (done == t.c.Iterations || ev.Every > 0 && done%ev.Every == 0)
}

// outOfPatience reports whether the last Patience evaluations were no better than the
// best.
func (t *Trainer) outOfPatience() bool {
	ev := t.c.Evaluate
	return ev != nil && ev.Patience > 0 && t.best != nil && t.best.Since >= ev.Patience
}

// keepsBest reports whether the best checkpoint is never removed.
func (t *Trainer) keepsBest() bool {
	return t.c.Save != nil && t.c.Evaluate != nil && t.c.Evaluate.KeepBest
}

// bestPath returns the path of the best checkpoint, "" if it may have been removed.
func (t *Trainer) bestPath() string {
	if !t.keepsBest() || t.best == nil {
		return ""
	}
	return t.c.Save.Dir.At(t.best.Iteration)
}
