package metamorphic

import (
	"math/rand/v2"
	"testing"

	"spillway/device/cpu"
	"spillway/internal/tiny"
	"spillway/planner"
	"spillway/planner/strategy"
)

// Where sums are canonical every plan gives the same bits: also those in which several devices
// have parts of one gradient, tied or not, and whatever memory there is.
func TestCanonicalSumsOfRandomPlans(t *testing.T) {
	kernels := cpu.Open(cpu.Options{Threads: 1})
	defer kernels.Close()
	site := tiny.Site(1 << 30)
	site.Kernels, site.Disk = kernels, planner.Disk{Budget: 1 << 26, Read: 1e9, Write: 1e9}
	list := subjects(t)
	standard := map[int]Outcome{}
	shared, other := 0, 0
	for n := range *plans {
		seed := *first + uint64(n)
		r := rand.New(rand.NewPCG(seed, 6))
		i := r.IntN(len(list))
		s := list[i]
		s.goal.CanonicalSums = true
		if _, ok := standard[i]; !ok {
			standard[i] = train(t, s, site, strategy.Uniform(false, false, strategy.SaveAll, 0))
		}
		choose, sameOrder := RandomChoice(r, s.goal.MicroBatches)
		p, got := s.trainBy(t, site, choose, seed)
		if err := standard[i].Same(got); err != nil {
			t.Errorf("run again with -seed %d -plans 1: %s on %d devices, %d micro-batches, clip %t: %v", seed, p.Strategy, len(p.Devices), s.goal.MicroBatches, s.goal.Optimizer.Clip, err)
		}
		if sameOrder(s.tied) {
			continue
		}
		// The same plan without canonical sums mostly gives other bits, or this shows nothing.
		shared++
		s.goal.CanonicalSums = false
		if _, plain := s.trainBy(t, site, choose, seed); standard[i].Same(plain) != nil {
			other++
		}
	}
	if shared < *plans/4 || other < shared/2 {
		t.Errorf("%d of %d plans share gradients, %d of them give other bits without canonical sums", shared, *plans, other)
	}
}
