package train_test

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spillway"
	"spillway/checkpoint"
	"spillway/data"
	"spillway/internal/runtest"
	"spillway/train"
)

// rising is a run that overfits: few texts are trained on, others evaluated.
func rising(t *testing.T, dir string, c train.Config, ev train.Evaluation, reports *[]train.Report) train.Result {
	t.Helper()
	job := plan(t, noDropout, spillway.Options{MicroBatchSize: 2, Packed: true, Evaluates: true, Optimizer: optimizer(t, "adamw:lr=0.02")})
	few, err := data.NewLoader(runtest.Documents(2, 61), data.Config{Length: seq, InOrder: true})
	if err != nil {
		t.Fatal(err)
	}
	ev.Feed = feed(t, data.Config{Epochs: 1, InOrder: true})
	c.Evaluate, c.Save = &ev, &train.Save{Dir: checkpoint.Dir{Path: dir, Keep: 1}}
	c.Report = func(r train.Report) { *reports = append(*reports, r) }
	result, err := train.Run(context.Background(), job, train.NewTokens(few), c)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// evaluations of some reports, by iteration.
func evaluations(list []train.Report) (losses []float64) {
	for _, r := range list {
		if r.EvalLoss != 0 {
			losses = append(losses, r.EvalLoss)
		}
	}
	return losses
}

// A run whose evaluations no longer become better ends, and its best checkpoint
// outlives newer ones; so it does when the run is interrupted on the way.
func TestPatience(t *testing.T) {
	ev := train.Evaluation{Every: 2, Patience: 3, KeepBest: true}
	var whole []train.Report
	dir := t.TempDir()
	r := rising(t, dir, train.Config{Iterations: 400}, ev, &whole)
	losses := evaluations(whole)
	best := slices.Min(losses)
	at := int64(2 * (slices.Index(losses, best) + 1))
	if !r.Stopped || r.Interrupted || r.Best == nil || r.Best.Loss != best || r.Best.Iteration != at || r.Iterations != at+2*ev.Patience {
		t.Fatalf("%+v with the best %+v; evaluations %v", r, r.Best, losses)
	}
	c, err := checkpoint.Open(r.BestCheckpoint)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 || c.Iteration != at || filepath.Base(r.Checkpoint) == filepath.Base(r.BestCheckpoint) {
		t.Errorf("the best and the last should be kept: %v, %v", entries, err)
	}

	if path, notice := checkpoint.Choose(dir); path != r.BestCheckpoint || !strings.Contains(notice, "stopped early") {
		t.Errorf("of the run's folder others take %s: %q", path, notice)
	}

	var parts []train.Report
	other := t.TempDir()
	half := rising(t, other, train.Config{Iterations: at + ev.Every}, ev, &parts)
	if path, notice := checkpoint.Choose(other); path != half.Checkpoint || notice != "" {
		t.Errorf("of a run that was not stopped others take %s: %q", path, notice)
	}
	again := rising(t, other, train.Config{Iterations: 400}, ev, &parts)
	if !again.Stopped || again.Iterations != r.Iterations || *again.Best != *r.Best {
		t.Errorf("in two parts %+v, at once %+v", again, r)
	}
	if once := rising(t, other, train.Config{Iterations: 400}, ev, &parts); once.Iterations != r.Iterations || !once.Stopped {
		t.Errorf("a run that had ended went on to %d", once.Iterations)
	}
}

// The last iteration is evaluated even if none before it is, and reports its perplexity.
func TestLastIterationIsEvaluated(t *testing.T) {
	var reports []train.Report
	r := rising(t, t.TempDir(), train.Config{Iterations: 5, ReportEvery: 10}, train.Evaluation{}, &reports)
	if len(reports) != 1 || reports[0].Iteration != 5 || math.Abs(reports[0].Perplexity-math.Exp(reports[0].EvalLoss)) > 1e-9 || r.Best.Loss != reports[0].EvalLoss || r.BestCheckpoint != "" {
		t.Errorf("%+v; %+v", reports, r)
	}
	raw, err := json.Marshal(reports[0])
	if err != nil || !json.Valid(raw) {
		t.Errorf("%s, %v", raw, err)
	}
}

// A run that was killed after an iteration became durable and before it was evaluated
// evaluates it when it goes on.
func TestOwedEvaluation(t *testing.T) {
	d := &diary{}
	var reports []train.Report
	ev := train.Evaluation{Every: 2}
	rising(t, t.TempDir(), train.Config{Iterations: 3, Journal: d}, ev, &reports)
	d.recovered = true
	var state map[string]any
	if err := json.Unmarshal(d.state, &state); err != nil || state["evaluated"] != 2.0 {
		t.Fatalf("iteration 3 was durable before it was evaluated, and 2 had been: %v, %v", state["evaluated"], err)
	}
	r := rising(t, t.TempDir(), train.Config{Iterations: 3, Journal: d}, ev, &reports)
	if r.Best == nil || r.Iterations != 3 || r.Best.Since == 0 && r.Best.Iteration != 3 {
		t.Errorf("%+v, the best %+v", r, r.Best)
	}
}
