package metamorphic

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"spillway/device/cpu"
	"spillway/internal/tiny"
	"spillway/plan"
	"spillway/planner"
	"spillway/planner/strategy"
	"spillway/spec"
	"spillway/weights"
)

// An evaluation in the memory of any random plan takes no memory of its own, computes the
// loss that a plan made for evaluating the same weights computes, also without dropout, and
// changes nothing: training goes on as without it.
func TestEvaluationsOfRandomPlans(t *testing.T) {
	kernels := cpu.Open(cpu.Options{Threads: 1})
	defer kernels.Close()
	site := tiny.Site(1 << 30)
	site.Kernels, site.Disk = kernels, planner.Disk{Budget: 1 << 26, Read: 1e9, Write: 1e9}
	list := subjects(t)
	deferred := 0
	for n := range *plans {
		seed := *first + uint64(n)
		r := rand.New(rand.NewPCG(seed, 5))
		s := list[r.IntN(len(list))]
		choose, _ := RandomChoice(r, s.goal.MicroBatches)
		p, err := planner.Build(s.model, s.goal, site, choose)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		with, err := planner.WithEvaluation(p, site)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if !slices.Equal(with.Arenas, p.Arenas) {
			t.Errorf("seed %d: %s: evaluations take memory: %v, training %v", seed, p.Strategy, with.Arenas, p.Arenas)
		}
		if slices.ContainsFunc(p.Instructions, func(s plan.Instruction) bool { return s.Deferred }) {
			deferred++
		}
		alone, err := planner.Build(s.evaluation, planner.Goal{MicroBatches: s.goal.MicroBatches}, site, strategy.Uniform(false, false, strategy.SaveAll, 0))
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		alternate(t, s, with, alone, seed)
	}
	if deferred < *plans/30 {
		t.Errorf("only %d of %d plans have deferred updates", deferred, *plans)
	}
}

// alternate trains with evaluations between the iterations, and without. Alone is a plan
// that evaluates the same model.
func alternate(t *testing.T, s subject, p, alone *plan.Plan, seed uint64) {
	t.Helper()
	const iterations = 3
	want, err := Train(s.model, p, t.TempDir(), 7, iterations)
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	begin := func(m *spec.Model, p *plan.Plan) *run {
		r, err := start(m, p, t.TempDir(), 7)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		return r
	}
	training, other := begin(s.model, p), begin(s.evaluation, alone)
	defer func() {
		if err := errors.Join(training.close(), other.close()); err != nil {
			t.Error(err)
		}
	}()
	var got Outcome
	for i := range iterations {
		err := fill(training.e, s.model, 7, i)
		if training.dropSent(); err == nil {
			err = training.e.RunPhase(context.Background(), plan.Evaluate, iterationArgs(7, i, p))
		}
		if err == nil {
			err = errors.Join(weights.Copy(other.e, training.e), other.iterate(i))
		}
		if err != nil {
			t.Fatalf("seed %d: %s: %v", seed, p.Strategy, err)
		}
		for j := range p.MicroBatches {
			if loss, want := training.e.Result(j)[0], other.e.Result(j)[0]; loss != want {
				t.Errorf("seed %d: %s: evaluated %v before iteration %d, by itself %v", seed, p.Strategy, loss, i, want)
			}
		}
		if err := training.iterate(i); err != nil {
			t.Fatalf("seed %d: %s: %v", seed, p.Strategy, err)
		}
		got.Losses = append(got.Losses, training.e.Loss())
	}
	if err := got.collect(training.e); err != nil {
		t.Fatal(err)
	}
	if err := want.Same(got); err != nil {
		t.Errorf("run again with -seed %d -plans 1: %s with evaluations: %v", seed, p.Strategy, err)
	}
}
