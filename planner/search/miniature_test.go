package search

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"spillway/graph"
	"spillway/machine"
	"spillway/plan"
	"spillway/planner/forecast"
	"spillway/planner/layout"
	"spillway/planner/strategy"
	"spillway/spec"
)

// hundreds is a model that is deep enough for miniatures.
const hundreds = deepEnough * strideShare

// deepBlueprint is that of a deep model on which streaming matters and the host updates.
func deepBlueprint(t testing.TB, devices, micros int, task graph.Task) *target {
	t.Helper()
	b := blueprintOf(t, fmt.Sprintf(layered, hundreds), devices, micros, task, tinyRates)
	b.Site.CPU = machine.Device{Kind: machine.CPU, Compute: machine.Compute{F32: 1e12}, Bandwidth: 1e10}
	return b
}

// What follows from two miniatures is what the plan of the model itself takes: memory
// and time, whatever the choice and the way devices share the work.
func TestMiniaturesTellWhatTheModelTakes(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 2))
	for n := range 24 {
		s := newSearch(deepBlueprint(t, 1+3*r.IntN(2), 1+r.IntN(4), []graph.Task{graph.Train, graph.Infer}[n%4/3]).itself())
		repeated := s.b.FindRepeats()
		fields, err := s.b.miniatures(repeated)
		if err != nil {
			t.Fatal(err)
		}
		small := newSearch(fields[0])
		s.times = repeated.Times
		ways := s.parallelisms()
		m := randomMix(r, small, ways[r.IntN(len(ways))])
		if s.b.Training() {
			m.UpdatedByCPU = r.IntN(m.OffloadedState + 1)
		}
		rough := tried(t, small, m)
		exact := tried(t, s, descent{s, small, repeated}.like(rough))
		near := 0.04
		if exact.choice.Split != nil {
			near = 0.25 // devices have whole blocks, and the first ones more of those that save memory
		}
		if off := math.Abs(rough.seconds/exact.seconds - 1); off > near {
			t.Errorf("%d, %s: %g s by miniatures, %g s by itself", n, strategy.Title(exact.choice), rough.seconds, exact.seconds)
		}
		for i, bytes := range exact.arenas {
			if off := math.Abs(float64(rough.arenas[i]-bytes)) / float64(exact.arenas[0]+bytes); off > near {
				t.Errorf("%d, %s: %d bytes of arena %d by miniatures, %d by itself", n, strategy.Title(exact.choice), rough.arenas[i], i, bytes)
			}
		}
	}
}

// tried is a candidate with its plan written and forecast.
func tried(t *testing.T, s *search, m strategy.Mix) *candidate {
	t.Helper()
	c, err := s.estimate(m)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.measureExactly(c); err != nil {
		t.Fatal(err)
	}
	if err := s.simulate(c); err != nil {
		t.Fatal(err)
	}
	return c
}

// A search on a miniature finds a plan about as fast as one that tries everything on the
// model itself, with a fraction of the steps written.
func TestMiniaturesFindWhatTheModelFinds(t *testing.T) {
	for _, share := range []float64{0.7, 0.35, 0.2} {
		var took [2]float64
		var written [2]int
		for i, look := range []func(*search) (*candidate, error){(*search).run, (*search).deepSearch} {
			s := newSearch(deepBlueprint(t, 1, 2, graph.Train).itself())
			standard, err := s.b.writer.Plan(s.choice(strategy.Mix{}))
			if err != nil {
				t.Fatal(err)
			}
			s.b.Site.Budget = int64(share * float64(standard.Arenas[0].Bytes))
			best, err := look(s)
			if err != nil {
				t.Fatal(err)
			}
			took[i], written[i] = best.seconds, s.written
		}
		t.Logf("%v of the memory: %g s, %d steps written, and %g s, %d", share, took[0], written[0], took[1], written[1])
		if took[1] > 1.04*took[0] {
			t.Errorf("%v of the memory: %g s by miniatures, %g s without", share, took[1], took[0])
		}
	}
}

// Repeats are found where they are: between blocks of other kinds, and with a rhythm of
// two kinds of blocks.
func TestRepeats(t *testing.T) {
	b := blueprintOf(t, fmt.Sprintf(layered, 9), 1, 1, graph.Train, tinyRates)
	if got, want := b.FindRepeats(), (layout.Repeats{First: 1, Blocks: 1, Times: 9}); got != want {
		t.Errorf("in 9 layers between two other blocks: %v, want %v", got, want)
	}
	m := *b.Model
	m.Blocks = append([]spec.Block(nil), m.Blocks...)
	for i := 2; i < 9; i += 2 { // every other layer is of a kind of its own
		m.Blocks[i].Kind = len(m.Kinds)
	}
	m.Kinds = append(m.Kinds[:len(m.Kinds):len(m.Kinds)], m.Kinds[1])
	rhythm, err := layout.New(&m, b.Goal, b.Site)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := rhythm.FindRepeats(), (layout.Repeats{First: 1, Blocks: 2, Times: 4}); got != want {
		t.Errorf("in 9 layers of two kinds by turns: %v, want %v", got, want)
	}
	short := layout.Repeats{First: 1, Blocks: 2, Times: 4}.Shortened(&m, 1)
	if err := short.Verify(); err != nil || len(short.Blocks) != 5 || short.Blocks[3].Name != "model.layers.8" {
		t.Errorf("shortened to one period: %d blocks, %v", len(short.Blocks), err)
	}
}

// The forecast of a deep model is its plan carried out, as that of any other.
func TestForecastOfDeepModels(t *testing.T) {
	b := deepBlueprint(t, 1, 1, graph.Train)
	standard, err := b.writer.Plan(newSearch(b.itself()).choice(strategy.Mix{}))
	if err != nil {
		t.Fatal(err)
	}
	b.Site.Budget = standard.Arenas[0].Bytes / 2
	p, err := Make(b.Model, b.Goal, b.Site)
	if err != nil {
		t.Fatal(err)
	}
	again, err := forecast.Of(p, b.Site)
	if err != nil {
		t.Fatal(err)
	}
	if again.StepSeconds != p.Forecast.StepSeconds || again.PeakBytes[plan.OnDevice] != p.Forecast.PeakBytes[plan.OnDevice] {
		t.Errorf("%v, carried out %v", p.Forecast, again)
	}
}
