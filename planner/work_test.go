package planner

import (
	"fmt"
	"testing"

	"spillway/graph"
)

// The work of a search, counted in plans written and simulated, hardly grows with the
// depth of the model: most choices are judged at a glance, however many there are. Ten
// times the layers give a climb more strides, and no more.
func TestDeepModelsNeedNoMorePlans(t *testing.T) {
	for _, share := range []float64{2, 0.6, 0.3} {
		var written, simulated [2]float64
		for i, layers := range []int{24, 240} {
			s := newSearch(blueprintOf(t, fmt.Sprintf(layered, layers), 1, 2, graph.Train, tinyRates).itself())
			standard, err := s.b.emit(s.choice(mix{}))
			if err != nil {
				t.Fatal(err)
			}
			s.b.site.Budget = int64(share * float64(standard.Arenas[0].Bytes))
			best, err := s.run()
			if err != nil {
				t.Fatal(err)
			}
			p, err := s.b.emit(best.choice)
			if err != nil {
				t.Fatal(err)
			}
			written[i], simulated[i] = float64(s.written)/float64(len(p.Steps)), float64(s.simulated)/float64(len(p.Steps))
		}
		t.Logf("%v of the memory: %.0f and %.0f plans written, %.0f and %.0f simulated", share, written[0], written[1], simulated[0], simulated[1])
		if written[1] > 2*written[0] || written[1] > 100 || simulated[1] > written[1] {
			t.Errorf("%v of the memory: with ten times the layers %.0f plans are written instead of %.0f, and %.0f simulated", share, written[1], written[0], simulated[1])
		}
	}
}
