package planner_test

import (
	"errors"
	"testing"

	"spillway/graph"
	"spillway/internal/tiny"
	"spillway/planner"
	"spillway/spec"
)

// tinyRequest is a request for the tiny Llama.
func tinyRequest(t testing.TB, budget int64, goal planner.Goal) planner.Request {
	t.Helper()
	task := graph.Infer
	if goal.Optimizer != nil {
		task = graph.Train
	}
	return planner.Request{MicroBatchSize: 1, Seq: 16, Goal: goal, Site: tiny.Site(budget), Trace: func(rows, seq int64) (*spec.Model, error) {
		return tiny.Model(t, tiny.Llama, graph.Config{MicroBatchSize: rows, Seq: seq, Task: task}), nil
	}}
}

// fits asks the search itself.
func fits(t testing.TB, r planner.Request) bool {
	t.Helper()
	_, _, err := r.Plan()
	var e *planner.FitError
	if err != nil && !errors.As(err, &e) {
		t.Fatal(err)
	}
	return err == nil
}

// What is found by bisection is what walking up finds: it has a plan, one more has
// none.
func TestLargestIsTheEdge(t *testing.T) {
	for _, budget := range []int64{120 << 10, 170 << 10} {
		for name, goal := range map[string]planner.Goal{"infer": {}, "train": tiny.AdamW(1, false), "clip": tiny.AdamW(2, true)} {
			r := tinyRequest(t, budget, goal)
			rows, err := r.LargestMicroBatch(20)
			if err != nil {
				t.Fatalf("%s in %d bytes: %v", name, budget, err)
			}
			walked := int64(0)
			for q := r; walked < 20; walked++ {
				if q.MicroBatchSize = walked + 1; !fits(t, q) {
					break
				}
			}
			if rows.MicroBatchSize != walked || rows.Plan.MicroBatchSize != walked {
				t.Errorf("%s in %d bytes: %d rows found, planned for %d, walking up finds %d", name, budget, rows.MicroBatchSize, rows.Plan.MicroBatchSize, walked)
			}
			if (rows.Next == nil) != (walked == 20) || rows.Next != nil && rows.Next.Needed <= rows.Next.Budget {
				t.Errorf("%s in %d bytes: what one more lacks is %+v", name, budget, rows.Next)
			}
			seq, err := r.LargestSeq(64)
			if err != nil {
				t.Fatal(err)
			}
			q := r
			if q.Seq = seq.Seq + 1; seq.Seq < 64 && fits(t, q) {
				t.Errorf("%s in %d bytes: sequences of %d found, one more fits too", name, budget, seq.Seq)
			}
		}
	}
}

func TestLargestStopsAtTheLimit(t *testing.T) {
	r := tinyRequest(t, 1<<30, planner.Goal{})
	for _, limit := range []int64{1, 2, 3, 7, 8} {
		l, err := r.LargestMicroBatch(limit)
		if err != nil {
			t.Fatal(err)
		}
		if l.MicroBatchSize != limit || l.Next != nil {
			t.Errorf("limit %d: %d rows, next %v", limit, l.MicroBatchSize, l.Next)
		}
	}
	if _, err := tinyRequest(t, 1<<10, planner.Goal{}).LargestMicroBatch(8); !errors.As(err, new(*planner.FitError)) {
		t.Errorf("in a kilobyte: %v, want a FitError", err)
	}
}

// No power of two has more tokens per second, by more than is asked for.
func TestFastestRows(t *testing.T) {
	r := tinyRequest(t, 400<<10, tiny.AdamW(1, false))
	best, err := r.FastestMicroBatch(32)
	if err != nil {
		t.Fatal(err)
	}
	for rows := int64(1); rows <= 2*best.MicroBatchSize; rows *= 2 {
		q := r
		if q.MicroBatchSize = rows; !fits(t, q) {
			continue
		}
		p, _, err := q.Plan()
		if err != nil {
			t.Fatal(err)
		}
		if p.Forecast.TokensPerSec > 1.01*best.Plan.Forecast.TokensPerSec {
			t.Errorf("%d rows: %.0f tokens/s, found were %d with %.0f", rows, p.Forecast.TokensPerSec, best.MicroBatchSize, best.Plan.Forecast.TokensPerSec)
		}
	}
}
