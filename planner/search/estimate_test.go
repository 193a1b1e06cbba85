package search

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"spillway/arch"
	"spillway/device/sim"
	"spillway/dtype"
	"spillway/graph"
	"spillway/machine"
	"spillway/optim"
	"spillway/planner/forecast"
	"spillway/planner/goal"
	"spillway/planner/layout"
	"spillway/planner/pass"
	"spillway/planner/strategy"
	"spillway/spec"
)

// tinyRates are those of a made-up device on which streaming matters.
var tinyRates = machine.Device{Compute: machine.Compute{BF16: 1e12}, Bandwidth: 1e11, Link: machine.Link{In: 1e9, Out: 2e9}}

const layered = `{"model_type":"llama","vocab_size":200,"hidden_size":64,"num_hidden_layers":%d,
"num_attention_heads":4,"num_key_value_heads":2,"intermediate_size":128,"rms_norm_eps":1e-5,
"tie_word_embeddings":false,"max_position_embeddings":512}`

func small(t testing.TB, config string, task graph.Task) *spec.Model {
	t.Helper()
	m, info, err := arch.FromConfig([]byte(config))
	if err != nil {
		t.Fatal(err)
	}
	model, err := spec.Trace("small", info.Type, m, graph.Config{MicroBatchSize: 1, Seq: 64, DType: dtype.BF16, Task: task})
	if err != nil {
		t.Fatal(err)
	}
	return model
}

// blueprintOf a small model for so many devices and micro-batches.
func blueprintOf(t testing.TB, config string, devices, micros int, task graph.Task, rates machine.Device) *target {
	t.Helper()
	rates.Name = "gpu0"
	site := goal.Site{Device: rates, DType: dtype.BF16, Devices: devices, Budget: 1 << 40, HostBudget: 1 << 40, Alignment: goal.Alignment,
		Kernels: sim.NewVirtual(rates, dtype.BF16, 0, goal.Alignment), Disk: goal.Disk{Budget: 1 << 40, Read: 3e8, Write: 2e8}}
	g := goal.Goal{MicroBatches: micros}
	if task == graph.Train {
		g.Master, g.Optimizer = true, &goal.Optimizer{Rule: optim.Adam, States: goal.FullStates("exp_avg", "exp_avg_sq")}
	}
	b, err := layout.New(small(t, config, task), g, site)
	if err != nil {
		t.Fatal(err)
	}
	return newTarget(b)
}

// randomMix is any mix of a way; without training only what makes sense then.
func randomMix(r *rand.Rand, s *search, w strategy.Parallelism) strategy.Mix {
	slabs, blocks := len(s.b.Slabs.List), len(s.b.Model.Blocks)
	m := strategy.Mix{Parallelism: w, Streamed: r.IntN(slabs + 1), Prefetch: 1 + r.IntN(4)}
	m.OnDisk = r.IntN(slabs+1) * r.IntN(2)
	if s.b.Training() {
		m.OffloadedState, m.Recompute, m.OffloadedActivations, m.PrefetchStates = r.IntN(slabs+1), r.IntN(s.b.Facts().AllRecomputed()+1), r.IntN(blocks+1), r.IntN(3)
		m.DelayedUpdates = r.IntN(2) == 0
	}
	return m
}

// No plan takes less memory or time than an estimate of its choice says.
func TestPlansTakeNoLessThanEstimated(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 1))
	near := 0
	for n := range 200 {
		rates := []machine.Device{
			{Compute: machine.Compute{BF16: 1e12}, Bandwidth: 1e11, Link: machine.Link{In: 1e9, Out: 2e9}},
			{Compute: machine.Compute{BF16: 1e10}, Bandwidth: 1e10, Link: machine.Link{In: 1e9, Out: 1e9, Bidirectional: machine.HalfDuplex}},
			{Compute: machine.Compute{BF16: 1e12}, Bandwidth: 1e11, Link: machine.Link{In: 1e9, Out: 2e9, Bidirectional: 0.7}},
			{Compute: machine.Compute{BF16: 1e12}, Sustained: machine.Compute{BF16: 7e11}, Bandwidth: 1e11, Link: machine.Link{In: 1e9, Out: 2e9}},
		}[r.IntN(4)]
		s := newSearch(blueprintOf(t, fmt.Sprintf(layered, 4), 1+r.IntN(3), 1+r.IntN(4), []graph.Task{graph.Train, graph.Infer}[r.IntN(2)], rates).itself())
		if s.b.Training() && r.IntN(2) == 0 {
			s.b.Goal.Optimizer.Clip, s.b.Optimizer.Clip = true, true
		}
		ways := s.parallelisms()
		m := randomMix(r, s, ways[r.IntN(len(ways))])
		c, err := s.estimate(m)
		if err != nil {
			t.Fatal(err)
		}
		p, err := s.b.writer.Plan(c.choice)
		if err != nil {
			t.Fatal(err)
		}
		for i, a := range p.Arenas {
			if a.Bytes < c.arenas[i] {
				t.Errorf("%d, %s: %d bytes of %s, by estimate %d", n, strategy.Title(c.choice), a.Bytes, a.Name, c.arenas[i])
			}
		}
		pass.Order(p)
		f, err := forecast.Of(p, s.b.Site)
		if err != nil {
			t.Fatal(err)
		}
		if f.StepSeconds < 0.999999*c.seconds {
			t.Errorf("%d, %s: %g s, by estimate %g s", n, strategy.Title(c.choice), f.StepSeconds, c.seconds)
		}
		if f.StepSeconds < 2*c.seconds {
			near++
		}
	}
	if near < 100 {
		t.Errorf("only %d of 200 plans take less than twice what an estimate says", near)
	}
}

// The index found by following a line is the one a walk from the start finds.
func TestFirstOfAgainstAWalk(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 9))
	for range 500 {
		lacks := make([]int64, 1+r.IntN(300))
		left := int64(r.IntN(50))
		for i := len(lacks) - 1; i >= 0; i-- {
			lacks[i] = -left
			left -= int64(r.IntN(20))
		}
		want := 0
		for lacks[want] > 0 {
			want++
		}
		asked := 0
		got, err := firstOf(0, len(lacks)-1, lacks[len(lacks)-1], func(i int) (int64, error) { asked++; return lacks[i], nil })
		if err != nil || got != want {
			t.Fatalf("found %d in %v, want %d: %v", got, lacks, want, err)
		}
		if asked > 18 {
			t.Errorf("asked %d times to find one of %d", asked, len(lacks))
		}
	}
}
