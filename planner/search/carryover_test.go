package search

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"spillway/graph"
	"spillway/machine"
	"spillway/plan"
	"spillway/planner/forecast"
	"spillway/planner/goal"
	"spillway/planner/pass"
	"spillway/planner/strategy"
)

// wordy has a table of words that outweighs its layers: it is updated last, and what is
// copied then takes as long as some layers.
const wordy = `{"model_type":"llama","vocab_size":60000,"hidden_size":128,"num_hidden_layers":6,
"num_attention_heads":4,"num_key_value_heads":4,"intermediate_size":512,"rms_norm_eps":1e-5,
"tie_word_embeddings":false,"max_position_embeddings":512}`

var wordyRates = machine.Device{Compute: machine.Compute{BF16: 1e12}, Bandwidth: 1e12, Link: machine.Link{In: 1e10, Out: 1e10}}

// without is the plan in which nothing carries over.
func without(p *plan.Plan) *plan.Plan {
	q := *p
	q.Instructions = slices.Clone(p.Instructions)
	for i := range q.Instructions {
		q.Instructions[i].CarriesOver, q.Instructions[i].AfterPrevious = false, nil
	}
	return &q
}

// ends is when the last step that does not carry over ends, and when the last of all, of an
// iteration by itself.
func ends(t *testing.T, p *plan.Plan, site goal.Site) (done, all float64) {
	t.Helper()
	events, err := forecast.Timeline(p, site)
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range events {
		end := float64(e.End) / 1e9
		if all = max(all, end); !p.Instructions[i].CarriesOver && p.Instructions[i].Verb != plan.Free {
			done = max(done, end)
		}
	}
	return done, all
}

func secondsOf(t *testing.T, p *plan.Plan, site goal.Site) float64 {
	t.Helper()
	f, err := forecast.Of(p, site)
	if err != nil {
		t.Fatal(err)
	}
	return f.StepSeconds
}

// ordered is the plan of a choice, its lanes in order.
func ordered(t *testing.T, b *target, choose func(slabs, blocks int) strategy.Choice) *plan.Plan {
	t.Helper()
	c := choose(len(b.Slabs.List), len(b.Model.Blocks))
	c.OnDisk, c.OffloadedActivations = make([]bool, len(b.Slabs.List)), make([]bool, len(b.Model.Blocks))
	p, err := b.writer.Plan(c)
	if err != nil {
		t.Fatal(err)
	}
	pass.Order(p)
	if err := plan.Verify(p); err != nil {
		t.Fatal(err)
	}
	return p
}

// apart gives what carries over bytes of its own.
func apart(p *plan.Plan, site goal.Site) {
	for _, s := range p.Instructions {
		if s.CarriesOver {
			b := &p.Buffers[s.Src]
			arena := &p.Arenas[b.Arena]
			b.Offset = pass.AlignUp(arena.Bytes, site.Alignment)
			arena.Bytes = b.Offset + b.Bytes
		}
	}
	pass.Order(p)
}

// Where weights stay on the device, nothing at the start of an iteration needs what carries over
// the one before, but for its bytes. With bytes of its own an iteration takes as long as
// what does not carry over. The same plan whose iterations end with everything takes longer by
// the copies of the last update, at the rate of the link.
func TestTheTailIsHidden(t *testing.T) {
	b := blueprintOf(t, wordy, 1, 1, graph.Train, wordyRates)
	p := ordered(t, b, strategy.Uniform(false, true, strategy.SaveAll, 1))
	apart(p, b.Site)
	done, all := ends(t, p, b.Site)
	tail := float64(12*p.Slabs[0].Elements) / 1e10 // master and moments of the words
	if math.Abs(all-done-tail) > 1e-6*all {
		t.Errorf("the last copy ends %v s after all else, want %v s", all-done, tail)
	}
	if got := secondsOf(t, p, b.Site); math.Abs(got-done) > 1e-6*done {
		t.Errorf("an iteration among many takes %v s, all but what carries over is done in %v s", got, done)
	}
	if got := secondsOf(t, without(p), b.Site); math.Abs(got-all) > 1e-6*all || all < 1.1*done {
		t.Errorf("an iteration that waits for everything takes %v s, its last copy ends after %v s", got, all)
	}
}

// Where weights stream, the first use of the next iteration waits for them to be home. They
// go there before the states updated with them, and it waits for no more than that.
func TestWeightsGoHomeFirst(t *testing.T) {
	b := blueprintOf(t, wordy, 1, 1, graph.Train, wordyRates)
	p := ordered(t, b, func(slabs, blocks int) strategy.Choice {
		c := strategy.Uniform(true, true, strategy.SaveAll, 1)(slabs, blocks)
		c.PieceElements = 1 << 18
		return c
	})
	first := slices.IndexFunc(p.Instructions, func(s plan.Instruction) bool { return s.Verb == plan.Move && s.Src == p.Slabs[0].Weight })
	home := slices.IndexFunc(p.Instructions, func(s plan.Instruction) bool { return s.Verb == plan.Move && s.Dst == p.Slabs[0].Weight })
	if past := p.Instructions[first].AfterPrevious; !slices.Equal(past, []int{home}) {
		t.Errorf("what fetches the first weights waits for %v of before, they go home in step %d", past, home)
	}
	behind := 0
	for i, s := range p.Instructions {
		if s.CarriesOver && i > home {
			behind++
		}
	}
	if behind == 0 {
		t.Error("nothing is sent home behind the weights")
	}
	if got, whole := secondsOf(t, p, b.Site), secondsOf(t, without(p), b.Site); got > 0.99*whole {
		t.Errorf("%v s, without overlap %v s", got, whole)
	}
}

// Overlap never costs time, and no iteration of many is shorter than what its lanes have
// to do.
func TestOverlapCostsNothing(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	carried := 0
	for n := range 60 {
		s := newSearch(blueprintOf(t, fmt.Sprintf(layered, 4), 1+r.IntN(3), 1+r.IntN(4), graph.Train, tinyRates).itself())
		ways := s.parallelisms()
		c, err := s.estimate(randomMix(r, s, ways[r.IntN(len(ways))]))
		if err != nil {
			t.Fatal(err)
		}
		p, err := s.b.writer.Plan(c.choice)
		if err != nil {
			t.Fatal(err)
		}
		pass.Order(p)
		if !forecast.CarriesOver(p) {
			continue
		}
		carried++
		f, err := forecast.Of(p, s.b.Site)
		if err != nil {
			t.Fatal(err)
		}
		if whole := secondsOf(t, without(p), s.b.Site); f.StepSeconds > whole*(1+1e-9) || f.RooflineShare > 1+1e-9 {
			t.Errorf("%d, %s: %v s, %v of the time by %s; without overlap %v s", n, strategy.Title(c.choice), f.StepSeconds, f.RooflineShare, f.Bound, whole)
		}
	}
	if carried < 20 {
		t.Errorf("something carries over in %d plans only", carried)
	}
}
