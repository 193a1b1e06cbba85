package search

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"spillway/graph"
	"spillway/plan"
	"spillway/planner/emit"
	"spillway/planner/forecast"
	"spillway/planner/strategy"
)

// The plan that lacks least is the one that is found by writing all of them, and fewer are written.
func TestSmallestAgainstWritingAll(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 4))
	refused, fewer := 0, 0
	for n := range 60 {
		b := blueprintOf(t, fmt.Sprintf(layered, 3), 1+r.IntN(3), 1+r.IntN(4), []graph.Task{graph.Train, graph.Infer}[r.IntN(2)], tinyRates)
		b.Site.Budget, b.Site.HostBudget, b.Site.Disk.Budget = int64(40+r.IntN(600))<<10, int64(60+r.IntN(1500))<<10, int64(r.IntN(2)*r.IntN(900))<<10
		byBounds, all := newSearch(newTarget(b.Layout).itself()), newSearch(newTarget(b.Layout).itself())
		peak, err := byBounds.fitting()
		if err == nil && peak == nil {
			_, err = all.fitting()
		}
		if err != nil {
			t.Fatal(err)
		}
		if peak != nil {
			continue
		}
		refused++
		for _, a := range all.tried {
			c, err := all.smallestOf(a)
			if err != nil {
				t.Fatal(err)
			}
			if all.smallest == nil || all.shortage(c).compare(all.shortage(all.smallest)) < 0 {
				all.smallest = c
			}
		}
		if err := all.measureExactly(all.smallest); err != nil {
			t.Fatal(err)
		}
		if err := byBounds.findSmallest(); err != nil {
			t.Fatal(err)
		}
		if got, want := byBounds.smallest, all.smallest; got.demand != want.demand || got.mix != want.mix {
			t.Errorf("%d: %s lacks %+v, of all plans %s lacks least, %+v", n, strategy.Title(got.choice), got.demand, strategy.Title(want.choice), want.demand)
		}
		if byBounds.written < all.written {
			fewer++
		}
	}
	if refused < 20 || fewer < refused/2 {
		t.Errorf("%d of 60 are refused, of %d fewer plans were written", refused, fewer)
	}
}

// Packing again after something has changed gives the places that packing anew does, packing within limits ends only where these
// are exceeded, and a forecast by what is known of other plans is that by nothing.
func TestDraftsPackAndForecastAsAnew(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 9))
	s := newSearch(blueprintOf(t, fmt.Sprintf(layered, 4), 2, 3, graph.Train, tinyRates).itself())
	ways := s.parallelisms()
	draft := func(c strategy.Choice) *emit.Draft {
		d, err := emit.NewWriter(s.b.Layout).Draft(c)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	offsets := func(p *plan.Plan) (list []int64) {
		for _, b := range p.Buffers {
			list = append(list, b.Offset)
		}
		for _, a := range p.Arenas {
			list = append(list, a.Bytes)
		}
		return list
	}
	ended := 0
	for range 25 {
		c := s.choice(randomMix(r, s, ways[r.IntN(len(ways))]))
		used := draft(c)
		for range 6 {
			anew := draft(c)
			held, by := r.IntN(4), r.IntN(3)
			for _, d := range []*emit.Draft{used, anew} {
				d.DelayReuse(held)
				d.PackedBy = by
			}
			anew.Pack()
			limits := make([]int64, len(anew.Plan.Arenas))
			for i, a := range anew.Plan.Arenas {
				limits[i] = a.Bytes - int64(r.IntN(2)*r.IntN(2))
			}
			used.PackWithin(limits)
			for i, a := range used.Plan.Arenas {
				want := anew.Plan.Arenas[i].Bytes
				if exceeds := want > limits[i]; exceeds && a.Bytes <= limits[i] || !exceeds && a.Bytes != want {
					t.Errorf("within %d bytes it takes %d of %s, anew %d", limits[i], a.Bytes, a.Name, want)
				} else if exceeds {
					ended++
				}
			}
			if used.Pack(); !slices.Equal(offsets(used.Plan), offsets(anew.Plan)) {
				t.Errorf("%s, held for %d runs, order %d: other places than anew", strategy.Title(c), held, by)
			}
			anew.Order()
			known, err := s.b.forecaster.Of(anew.Plan)
			if err != nil {
				t.Fatal(err)
			}
			if nothing, err := forecast.Of(anew.Plan, s.b.Site); err != nil || nothing.StepSeconds != known.StepSeconds {
				t.Errorf("%s: %v s by what is known of other plans, %v by nothing, %v", strategy.Title(c), known.StepSeconds, nothing, err)
			}
		}
	}
	if ended < 10 {
		t.Errorf("packing ended early %d times", ended)
	}
}
