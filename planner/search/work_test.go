package search

import (
	"fmt"
	"testing"

	"spillway/graph"
	"spillway/planner/strategy"
)

// The work of a search, counted in plans written and simulated, hardly grows with the
// depth of the model: most choices are judged by estimate, however many there are. Ten
// times the layers give a climb more strides, and no more.
func TestDeepModelsNeedNoMorePlans(t *testing.T) {
	for _, share := range []float64{2, 0.6, 0.3} {
		var written, simulated [2]float64
		for i, layers := range []int{24, 240} {
			s := newSearch(blueprintOf(t, fmt.Sprintf(layered, layers), 1, 2, graph.Train, tinyRates).itself())
			standard, err := s.b.writer.Plan(s.choice(strategy.Mix{}))
			if err != nil {
				t.Fatal(err)
			}
			s.b.Site.Budget = int64(share * float64(standard.Arenas[0].Bytes))
			best, err := s.run()
			if err != nil {
				t.Fatal(err)
			}
			p, err := s.b.writer.Plan(best.choice)
			if err != nil {
				t.Fatal(err)
			}
			written[i], simulated[i] = float64(s.written)/float64(len(p.Instructions)), float64(s.simulated)/float64(len(p.Instructions))
		}
		t.Logf("%v of the memory: %.0f and %.0f plans written, %.0f and %.0f simulated", share, written[0], written[1], simulated[0], simulated[1])
		if written[1] > 2*written[0] || written[1] > 100 || simulated[1] > written[1] {
			t.Errorf("%v of the memory: with ten times the layers %.0f plans are written instead of %.0f, and %.0f simulated", share, written[1], written[0], simulated[1])
		}
	}
}

// Of a very deep model hardly a plan is written: it is searched on miniatures, and then
// what was best there is written and seen to fit. Whatever the depth, that is as much.
func TestVeryDeepModelsAreWrittenOnce(t *testing.T) {
	for _, share := range []float64{2, 0.4} {
		var searched [2]int
		for i, layers := range []int{1000, 2000} {
			s := newSearch(blueprintOf(t, fmt.Sprintf(layered, layers), 1, 1, graph.Train, tinyRates).itself())
			standard, err := s.b.writer.Plan(s.choice(strategy.Mix{}))
			if err != nil {
				t.Fatal(err)
			}
			s.b.Site.Budget = int64(share * float64(standard.Arenas[0].Bytes))
			best, err := s.deepSearch()
			if err != nil {
				t.Fatal(err)
			}
			whole := 0
			for _, c := range s.made {
				if c.written && !c.extrapolated {
					whole++
				}
			}
			if !best.exact || best.bound || whole > 3 {
				t.Errorf("%v of the memory, %d layers: %d plans of the whole model are written", share, layers, whole)
			}
			searched[i] = s.written - whole*s.b.writer.UsualLength()
		}
		t.Logf("%v of the memory: %d and %d steps of miniatures written", share, searched[0], searched[1])
		if searched[1] > 3*searched[0]/2 {
			t.Errorf("%v of the memory: %d steps of miniatures are written, with half the layers %d", share, searched[1], searched[0])
		}
	}
}
