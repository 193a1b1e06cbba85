package planner_test

import (
	"math"
	"strings"
	"testing"

	"spillway/arch/vision"
	"spillway/dtype"
	"spillway/graph"
	"spillway/internal/tiny"
	"spillway/machine"
	"spillway/op"
	"spillway/optim"
	"spillway/plan"
	"spillway/planner"
	"spillway/planner/strategy"
	"spillway/spec"
	"spillway/units"
)

// imageNet is a network for images, traced for training.
func imageNet(t *testing.T, net *vision.ResNet, batch int64) (*spec.Model, planner.Goal) {
	t.Helper()
	m, err := spec.Trace("resnet", "own", net, graph.Config{MicroBatchSize: batch, Seq: 1, DType: dtype.BF16, Task: graph.Train})
	if err != nil {
		t.Fatal(err)
	}
	return m, planner.Goal{MicroBatches: 1, Master: true, Grad: dtype.BF16, Decay: func(string) bool { return true },
		Optimizer: &planner.Optimizer{Rule: optim.SGD, States: planner.FullStates("momentum_buffer")}}
}

// ResNet-50 trains within a quarter of the memory that it takes when nothing is recomputed: what norms make lies where
// their operands lay, and what waits longest waits on the host.
func TestResNetFitsAQuarter(t *testing.T) {
	m, goal := imageNet(t, vision.NewResNet50(), 128)
	h200, err := machine.Parse("h200")
	if err != nil {
		t.Fatal(err)
	}
	site, err := planner.SiteOf(h200, h200.Devices[0].Name, dtype.BF16)
	if err != nil {
		t.Fatal(err)
	}
	whole, err := planner.Make(m, goal, site)
	if err != nil {
		t.Fatal(err)
	}
	site.Budget = whole.Arenas[0].Bytes / 4
	p, err := planner.Make(m, goal, site)
	if err != nil {
		t.Fatal(err)
	}
	if p.Arenas[0].Bytes > site.Budget {
		t.Errorf("it takes %d bytes of %d", p.Arenas[0].Bytes, site.Budget)
	}
	if share := whole.Forecast.StepSeconds / p.Forecast.StepSeconds; share < 0.5 {
		t.Errorf("%s has %.0f%% of the speed of %s", p.Strategy, 100*share, whole.Strategy)
	}
}

// Where x of a norm is read for the last time, its gradient lies there; and what a matmul adds lies where its result goes.
func TestNormsLieOnWhatTheyRead(t *testing.T) {
	m, goal := imageNet(t, vision.NewResNet(32, 10, 2, 1, 1, 1), 4)
	h200, _ := machine.Parse("h200")
	site, err := planner.SiteOf(h200, h200.Devices[0].Name, dtype.BF16)
	if err != nil {
		t.Fatal(err)
	}
	p, err := planner.Build(m, goal, site, strategy.Uniform(false, false, strategy.SaveNone, 1))
	if err != nil {
		t.Fatal(err)
	}
	gradients, on, sums, outside := 0, 0, 0, 0
	for _, g := range p.Programs {
		for _, n := range g.Graph.Nodes {
			switch {
			case n.Kind == op.GroupNormGrad:
				if gradients++; g.Places[n.In[0]] == g.Places[n.Out[0]] {
					on++
				}
			case n.Kind == op.ConvInput && n.Attr.Plus:
				if sums++; g.Places[n.In[2]] == g.Places[n.Out[0]] && g.Places[n.Out[0]].Region == plan.OutGradInput {
					outside++
				}
			}
		}
	}
	if on != gradients || gradients == 0 || outside != sums || sums == 0 {
		t.Errorf("%d of %d gradients of norms lie on x, %d of %d sums where they go", on, gradients, outside, sums)
	}
}

// The batch of images comes while the step before runs. A step then takes less by what the copy took before it began, or
// where the link is slow by all it computes. It costs a copy within the device and memory for a second batch, to the byte.
func TestNextBatchComesDuringAStep(t *testing.T) {
	m, goal := imageNet(t, vision.NewResNet50(), 128)
	for _, text := range []string{"h200", "h200 with a slow link"} {
		name, _, slow := strings.Cut(text, " ")
		described, err := machine.Parse(name)
		if err != nil {
			t.Fatal(err)
		}
		site, err := planner.SiteOf(described, described.Devices[0].Name, dtype.BF16)
		if err != nil {
			t.Fatal(err)
		}
		if slow {
			site.Device.Link.In = units.Rate(2e9)
		}
		with, err := planner.Make(m, goal, site)
		if err != nil {
			t.Fatal(err)
		}
		alone := goal
		alone.Bounds.SingleBatch = true
		without, err := planner.Make(m, alone, site)
		if err != nil {
			t.Fatal(err)
		}
		if !with.PrefetchesBatch() || without.PrefetchesBatch() {
			t.Fatalf("%s: the next batch comes during a step: %v; and where that is not wanted: %v", text, with.PrefetchesBatch(), without.PrefetchesBatch())
		}
		var batch int64
		for _, b := range with.Buffers {
			if b.Class == plan.BatchData {
				batch = b.Bytes
			}
		}
		d := site.Device
		copied := d.Link.In.Time(units.Bytes(batch)).Seconds() + d.Link.Latency.Seconds()
		within := d.Bandwidth.Time(units.Bytes(2*batch)).Seconds() + d.Link.Latency.Seconds()
		computes := without.Forecast.StepSeconds - copied
		want := max(computes+within, copied+within)
		if got := with.Forecast.StepSeconds; math.Abs(got-want) > 20e-6 {
			t.Errorf("%s: a step takes %.3f ms, want %.3f: %.3f ms without, of which the copy is %.3f", text, 1e3*got, 1e3*want, 1e3*without.Forecast.StepSeconds, 1e3*copied)
		}
		more := (batch + site.Alignment - 1) / site.Alignment * site.Alignment
		if got := with.Arenas[0].Bytes - without.Arenas[0].Bytes; got != more {
			t.Errorf("%s: it takes %d bytes more, a batch has %d", text, got, batch)
		}
		if with.Forecast.BytesIn != without.Forecast.BytesIn || with.Forecast.BytesIn < batch {
			t.Errorf("%s: %d bytes come in, without %d", text, with.Forecast.BytesIn, without.Forecast.BytesIn)
		}
		if slow {
			continue
		}
		site.Budget = with.Arenas[0].Bytes - 1
		if short, err := planner.Make(m, goal, site); err != nil || short.PrefetchesBatch() && short.Strategy == without.Strategy {
			t.Errorf("%s: with a byte less than it takes, it is still done: %v", text, err)
		}
	}
}

// A few tokens are not worth memory for a second batch.
func TestSmallBatchesComeWhenTheirStepBegins(t *testing.T) {
	h200, err := machine.Parse("h200")
	if err != nil {
		t.Fatal(err)
	}
	site, err := planner.SiteOf(h200, h200.Devices[0].Name, dtype.F32)
	if err != nil {
		t.Fatal(err)
	}
	p, err := planner.Make(tiny.Model(t, tiny.Llama, graph.Config{MicroBatchSize: 2, Seq: 16, Task: graph.Train}), tiny.AdamW(1, false), site)
	if err != nil {
		t.Fatal(err)
	}
	if p.PrefetchesBatch() {
		t.Error("the next batch of some tokens comes during a step")
	}
}
