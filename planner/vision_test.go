package planner_test

import (
	"testing"

	"spillway/arch/vision"
	"spillway/dtype"
	"spillway/graph"
	"spillway/machine"
	"spillway/op"
	"spillway/optim"
	"spillway/plan"
	"spillway/planner"
	"spillway/planner/strategy"
	"spillway/spec"
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
