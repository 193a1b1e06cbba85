package planner_test

import (
	"testing"

	"spillway/graph"
	"spillway/internal/tiny"
	"spillway/plan"
	"spillway/planner"
	"spillway/planner/strategy"
)

// With whole gradients devices add theirs once; with sharded ones after every round
// of micro-batches, and hold none in between that they do not own. Optimizer state is
// with one device either way.
func TestWholeAndShardedGradients(t *testing.T) {
	m := tiny.Model(t, tiny.Untied, graph.Config{MicroBatchSize: 1, Seq: 16, Task: graph.Train})
	site := tiny.Site(1 << 30)
	site.Devices = 2
	const rounds = 3
	build := func(shard bool) *plan.Plan {
		p, err := planner.Build(m, tiny.AdamW(2*rounds, false), site, func(slabs, blocks int) strategy.Choice {
			c := strategy.Uniform(false, false, strategy.SaveAll, 0)(slabs, blocks)
			c.Devices, c.ShardGradients = 2, shard
			return c
		})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	whole, sharded := build(false), build(true)
	if a, b := sent(whole), sent(sharded); a == 0 || b != rounds*a {
		t.Errorf("whole gradients send %d bytes, sharded ones %d; there are %d rounds", a, b, rounds)
	}
	// Between two rounds only owners hold gradients.
	if a, b := gradientsHeld(whole), gradientsHeld(sharded); b >= a {
		t.Errorf("at most %d bytes of gradients are alive if whole, %d if sharded", a, b)
	}
	for _, p := range []*plan.Plan{whole, sharded} {
		for _, s := range p.Slabs {
			if len(s.Replicas) != 1 {
				t.Errorf("the weights of %s have %d replicas", s.Name, len(s.Replicas))
			}
		}
	}
}

// sent is how many bytes of gradients go from one device to another.
func sent(p *plan.Plan) (bytes int64) {
	for _, s := range p.Instructions {
		if s.Verb == plan.Move && p.Buffers[s.Src].Class == plan.Gradient && p.TierOf(s.Dst) == plan.OnDevice {
			bytes += p.Buffers[s.Src].Bytes
		}
	}
	return bytes
}

// gradientsHeld is the most bytes of gradients alive at once on all devices.
func gradientsHeld(p *plan.Plan) (most int64) {
	alive, live := map[int]bool{}, int64(0)
	for i, accesses := range p.Accesses() {
		if s := &p.Instructions[i]; s.Verb == plan.Free && alive[s.Dst] {
			live -= p.Buffers[s.Dst].Bytes
		}
		for _, a := range accesses {
			if p.Buffers[a.Buffer].Class == plan.Gradient && !alive[a.Buffer] {
				alive[a.Buffer] = true
				live += p.Buffers[a.Buffer].Bytes
			}
		}
		most = max(most, live)
	}
	return most
}
