package metamorphic

import (
	"context"
	"math/rand/v2"
	"testing"

	"spillway/device/cpu"
	"spillway/internal/tiny"
	"spillway/plan"
	"spillway/planner"
)

// An evaluation phase derived from any random plan is sound, computes the loss that the next
// iteration begins with, and changes nothing: training goes on as without it.
func TestEvaluationsOfRandomPlans(t *testing.T) {
	kernels := cpu.Open(cpu.Options{Threads: 1})
	defer kernels.Close()
	site := tiny.Site(1 << 30)
	site.Kernels, site.Disk = kernels, planner.Disk{Budget: 1 << 26, Read: 1e9, Write: 1e9}
	list := subjects(t)
	evaluated := 0
	for n := range *plans {
		seed := *first + uint64(n)
		r := rand.New(rand.NewPCG(seed, 5))
		s := list[r.IntN(len(list))]
		choose, _ := RandomChoice(r, s.goal.MicroBatches)
		p, err := planner.Build(s.model, s.goal, site, choose)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		eval, err := p.Evaluation()
		if err != nil {
			continue // dropout, or deferred updates
		}
		evaluated++
		p.Phases = []plan.Phase{eval}
		if err := plan.Verify(p); err != nil {
			t.Fatalf("seed %d: %s: %v", seed, p.Strategy, err)
		}
		alternate(t, s, p, seed)
	}
	if evaluated < *plans/3 {
		t.Errorf("only %d of %d plans can evaluate", evaluated, *plans)
	}
}

// alternate trains with evaluations between the iterations, and without.
func alternate(t *testing.T, s subject, p *plan.Plan, seed uint64) {
	t.Helper()
	const iterations = 3
	want, err := Train(s.model, p, t.TempDir(), 7, iterations)
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	run, err := start(s.model, p, t.TempDir(), 7)
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	defer func() {
		if err := run.close(); err != nil {
			t.Error(err)
		}
	}()
	var got Outcome
	for i := range iterations {
		if err := fill(run.e, s.model, 7, i); err != nil {
			t.Fatal(err)
		}
		if err := run.e.RunPhase(context.Background(), plan.Evaluate, iterationArgs(7, i, p)); err != nil {
			t.Fatalf("seed %d: %s: %v", seed, p.Strategy, err)
		}
		if loss := run.e.Loss(); loss != want.Losses[i] {
			t.Errorf("seed %d: %s: evaluated %v before iteration %d, which has %v", seed, p.Strategy, loss, i, want.Losses[i])
		}
		if err := run.iterate(i); err != nil {
			t.Fatalf("seed %d: %s: %v", seed, p.Strategy, err)
		}
		got.Losses = append(got.Losses, run.e.Loss())
	}
	if err := got.collect(run.e); err != nil {
		t.Fatal(err)
	}
	if err := want.Same(got); err != nil {
		t.Errorf("run again with -seed %d -plans 1: %s with evaluations: %v", seed, p.Strategy, err)
	}
}
