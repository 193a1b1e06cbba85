package autograd_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"spillway/autograd"
	"spillway/dtype"
	"spillway/graph"
	"spillway/internal/numtest"
	"spillway/op"
)

// results are the numbers of a program's outputs by role and index.
type results map[graph.Role]map[int]op.Array

func collect(p *graph.Program, all values) results {
	r := results{}
	for _, out := range p.Outputs {
		if r[out.Role] == nil {
			r[out.Role] = map[int]op.Array{}
		}
		r[out.Role][out.Index] = all[out.Value]
	}
	return r
}

// runSplit runs forward, passes on what is saved and nothing else, runs backward.
func runSplit(t *testing.T, j *autograd.Joint, keep []graph.Value, accumulate func(int) bool, in values) (forward, backward results) {
	t.Helper()
	f, b, err := j.Split(keep, accumulate)
	if err != nil {
		t.Fatal(err)
	}
	forward = collect(f, mustRun(t, f, only(f.Inputs, in), args))
	given := only(b.Inputs, in)
	for _, port := range graph.Ports(b.Inputs, graph.Saved) {
		given[port.Value] = forward[graph.Saved][port.Index]
	}
	for _, port := range b.Outputs {
		if port.Role == graph.GradParam && accumulate != nil && accumulate(port.Index) {
			given[port.Value] = start(b.Type(port.Value), port.Index)
		}
	}
	return forward, collect(b, mustRun(t, b, given, args))
}

// start is what a gradient holds before it is added to.
func start(t op.Type, param int) op.Array { return numtest.Random(t, uint64(500+param)) }

// only keeps the numbers a program asks for, so that one it forgot to ask for shows.
func only(ports []graph.Port, in values) values {
	some := values{}
	for _, port := range ports {
		if a, ok := in[port.Value]; ok && port.Role != graph.Saved {
			some[port.Value] = a
		}
	}
	return some
}

func jointOf(t *testing.T, name string) (*autograd.Joint, values) {
	t.Helper()
	p := trace(t, name)
	in := inputs(p)
	j := mustDifferentiate(t, p, autograd.Options{InputGrad: true})
	for i, g := range j.GradOut {
		if g != 0 {
			in[g] = numtest.Random(j.Program.Type(g), uint64(1000+i))
		}
	}
	return j, in
}

func equal(t *testing.T, what string, got, want map[int]op.Array) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: %d of them, want %d", what, len(got), len(want))
	}
	for i, w := range want {
		if !slices.Equal(got[i].F, w.F) {
			t.Errorf("%s %d differs: %v", what, i, numtest.Compare(got[i].F, w.F))
		}
	}
}

// Whatever is kept, forward and backward give the same bits as saving all.
func TestRecomputeGivesTheSameBits(t *testing.T) {
	for name := range blocks {
		j, in := jointOf(t, name)
		forward, want := runSplit(t, j, j.Saved(), nil, in)
		whole := collect(j.Program, mustRun(t, j.Program, in, args))
		for _, role := range []graph.Role{graph.GradCarry, graph.GradParam} {
			equal(t, name+" joint "+string(role), want[role], whole[role])
		}
		random := rand.New(rand.NewPCG(1, 2))
		for range 20 {
			var keep []graph.Value
			share := random.Float64()
			for _, v := range j.Made() {
				if random.Float64() < share {
					keep = append(keep, v)
				}
			}
			random.Shuffle(len(keep), func(a, b int) { keep[a], keep[b] = keep[b], keep[a] })
			f, b := runSplit(t, j, keep, nil, in)
			equal(t, name+" carries", f[graph.Carry], forward[graph.Carry])
			equal(t, name+" gradients of carries", b[graph.GradCarry], want[graph.GradCarry])
			equal(t, name+" gradients of params", b[graph.GradParam], want[graph.GradParam])
		}
	}
}

func TestSavingAllRecomputesNothing(t *testing.T) {
	for name := range blocks {
		j, _ := jointOf(t, name)
		forward, backward, err := j.Split(j.Saved(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := len(backward.Nodes), len(j.Program.Nodes)-j.Forward; got != want {
			t.Errorf("%s: backward has %d nodes, the gradient has %d", name, got, want)
		}
		if len(forward.Nodes) != j.Forward {
			t.Errorf("%s: forward has %d nodes of %d", name, len(forward.Nodes), j.Forward)
		}
		if got := len(graph.Ports(backward.Inputs, graph.Saved)); got != len(j.Saved()) {
			t.Errorf("%s: backward takes %d kept values of %d", name, got, len(j.Saved()))
		}
		for _, v := range j.Saved() {
			fewer := slices.DeleteFunc(j.Saved(), func(w graph.Value) bool { return w == v })
			if _, less, err := j.Split(fewer, nil); err != nil || len(less.Nodes) <= len(backward.Nodes) {
				t.Errorf("%s: without value %d nothing is recomputed (%v)", name, v, err)
			}
		}
	}
}

// Attention makes o and the row sums in one node: saving one of the two, the node
// runs again and makes both.
func TestSavingOneOutputOfANode(t *testing.T) {
	j, in := jointOf(t, "llama")
	i := slices.IndexFunc(j.Program.Nodes, func(n graph.Node) bool { return n.Kind == op.Attention })
	o := j.Program.Nodes[i].Out[0]
	_, backward, err := j.Split([]graph.Value{o}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if kept := graph.Ports(backward.Inputs, graph.Saved); len(kept) != 0 {
		t.Errorf("backward asks for %v and makes it again", kept)
	}
	_, want := runSplit(t, j, j.Saved(), nil, in)
	_, got := runSplit(t, j, []graph.Value{o}, nil, in)
	equal(t, "gradients", got[graph.GradParam], want[graph.GradParam])
}

func TestMergedEqualsSplit(t *testing.T) {
	for _, name := range []string{"head", "loss"} {
		j, in := jointOf(t, name)
		forward, want := runSplit(t, j, j.Saved(), nil, in)
		p, err := j.Merged(nil)
		if err != nil {
			t.Fatal(err)
		}
		got := collect(p, mustRun(t, p, only(p.Inputs, in), args))
		equal(t, name+" loss", got[graph.Result], forward[graph.Result])
		equal(t, name+" gradients of carries", got[graph.GradCarry], want[graph.GradCarry])
		equal(t, name+" gradients of params", got[graph.GradParam], want[graph.GradParam])
		if name == "head" && slices.ContainsFunc(p.Nodes, func(n graph.Node) bool { return n.Kind == op.LinearCrossEntropy }) {
			t.Error("the loss is computed twice")
		}
	}
	j, _ := jointOf(t, "llama")
	if _, err := j.Merged(nil); err == nil {
		t.Error("a block without a loss was merged")
	}
}

// Adding to a gradient gives what was there plus the gradient, for all params, for
// some, and for those whose op cannot add.
func TestAccumulate(t *testing.T) {
	for name := range blocks {
		j, in := jointOf(t, name)
		_, plain := runSplit(t, j, nil, nil, in)
		for _, accumulate := range []func(int) bool{
			func(int) bool { return true },
			func(i int) bool { return i%2 == 0 },
			func(i int) bool { return i%3 == 2 },
		} {
			_, got := runSplit(t, j, nil, accumulate, in)
			for i, g := range plain[graph.GradParam] {
				want := g.Clone()
				if accumulate(i) {
					for k, f := range start(g.Type, i).F {
						want.F[k] += f
					}
				}
				if d := numtest.Compare(got[graph.GradParam][i].F, want.F); d.Max > 1e-14 {
					t.Errorf("%s: param %d accumulated: %v", name, i, d)
				}
			}
			equal(t, name+" gradients of carries", got[graph.GradCarry], plain[graph.GradCarry])
		}
	}
}

func TestFrozenParamsCostNothing(t *testing.T) {
	for name := range blocks {
		p := trace(t, name)
		for i := range p.Inputs {
			p.Inputs[i].Frozen = p.Inputs[i].Role == graph.Param
		}
		j := mustDifferentiate(t, p, autograd.Options{})
		if extra := len(j.Program.Nodes) - j.Forward; extra != 0 {
			t.Errorf("%s: all frozen, no carry wanted, and %d gradient nodes", name, extra)
		}
		if _, backward, err := j.Split(nil, nil); err != nil || len(backward.Nodes)+len(backward.Inputs) != 0 {
			t.Errorf("%s: a backward program of %d nodes, error %v", name, len(backward.Nodes), err)
		}
	}
}

// With one param trainable its gradient is the same as with all.
func TestOneTrainableParam(t *testing.T) {
	for name := range blocks {
		all, in := jointOf(t, name)
		want := mustRun(t, all.Program, in, args)
		for alone, gradient := range all.GradParam {
			if gradient == 0 {
				continue // frozen
			}
			p := trace(t, name)
			for i, port := range p.Inputs {
				p.Inputs[i].Frozen = port.Role == graph.Param && port.Index != alone
			}
			j := mustDifferentiate(t, p, autograd.Options{})
			got := mustRun(t, j.Program, in, args)[j.GradParam[alone]]
			if w := want[gradient]; !slices.Equal(got.F, w.F) {
				t.Errorf("%s: param %d alone: %v", name, alone, numtest.Compare(got.F, w.F))
			}
			if len(graph.Ports(j.Program.Outputs, graph.GradParam)) != 1 || len(graph.Ports(j.Program.Outputs, graph.GradCarry)) != 0 {
				t.Errorf("%s: gradients nobody asked for", name)
			}
		}
	}
}

// With the carries wanted and all params frozen, no node makes the gradient of a
// param: that of a weight would be a product with TransA, that of a bias a sum.
func TestFrozenParamsHaveNoGradientNodes(t *testing.T) {
	for name := range blocks {
		p := trace(t, name)
		for i := range p.Inputs {
			p.Inputs[i].Frozen = p.Inputs[i].Role == graph.Param
		}
		j := mustDifferentiate(t, p, autograd.Options{InputGrad: true})
		for _, n := range j.Program.Nodes[j.Forward:] {
			switch n.Kind {
			case op.SumRows, op.EmbeddingGrad:
				t.Errorf("%s: %s from %s", name, n.Kind, n.At)
			case op.MatMul:
				if n.Attr.TransA {
					t.Errorf("%s: the gradient of a weight, from %s", name, n.At)
				}
			case op.RMSNormGrad, op.LayerNormGrad, op.LinearCrossEntropyGrad:
				if !n.Attr.InputOnly {
					t.Errorf("%s: %s with gradients of params, from %s", name, n.Kind, n.At)
				}
			}
		}
	}
}

func TestKeepRefusesWhatForwardDoesNotMake(t *testing.T) {
	j, _ := jointOf(t, "llama")
	made := j.Made()[0]
	for _, keep := range [][]graph.Value{{j.Program.Inputs[0].Value}, {made, made}, {0}, {graph.Value(len(j.Program.Types))}, {j.GradOut[0]}} {
		if _, _, err := j.Split(keep, nil); err == nil {
			t.Errorf("kept %v", keep)
		}
	}
}

// Each gradient a joint gives has memory of its own, a node makes it and one port
// has it, and the type of what it is the gradient of.
func TestGradientsHaveValuesOfTheirOwn(t *testing.T) {
	for name := range blocks {
		j, _ := jointOf(t, name)
		made := map[graph.Value]bool{}
		for _, n := range j.Program.Nodes[j.Forward:] {
			for _, v := range n.Out {
				made[v] = true
			}
		}
		for _, out := range j.Program.Outputs[len(j.Outputs):] {
			if !made[out.Value] {
				t.Errorf("%s: %s %d is value %d, taken or not made by a gradient node", name, out.Role, out.Index, out.Value)
			}
			delete(made, out.Value)
		}
		for v, g := range gradients(j, trace(t, name)) {
			if g != 0 && !j.Program.Type(g).Equal(j.Program.Type(v)) {
				t.Errorf("%s: the gradient of a %v is %v", name, j.Program.Type(v), j.Program.Type(g))
			}
		}
	}
}

// A norm whose statistics were saved is made again from them, with the same gradients as when everything is saved.
func TestNormsAreMadeAgainFromTheirStatistics(t *testing.T) {
	real := func(dims ...int64) op.Type { return op.Type{DType: dtype.F32, Shape: dims} }
	b := graph.NewBuilder("block", graph.Config{})
	x := b.Input(real(2, 3, 3, 4))
	y := x
	for _, name := range []string{"n", "m"} {
		y = b.Conv(op.Spatial{}, y, b.Param(name+".conv", real(4, 4, 1, 1), false), 0)
		y = b.BatchNorm(y, b.Param(name+".w", real(4), false), b.Param(name+".b", real(4), false), b.Param(name+".mean", real(4), false), b.Param(name+".var", real(4), false), 1e-5)
		if name == "m" {
			y = b.Add(y, x)
		}
		y = b.Map(op.ReLU, 0, 0, y)
	}
	p, err := b.Program(graph.Carry, y)
	if err != nil {
		t.Fatal(err)
	}
	j, err := autograd.Differentiate(graph.FuseNorms(p), autograd.Options{InputGrad: true})
	if err != nil {
		t.Fatal(err)
	}
	in := values{}
	for i, port := range j.Program.Inputs {
		in[port.Value] = numtest.Random(j.Program.Type(port.Value), uint64(i))
	}
	var stats []graph.Value
	for _, n := range j.Program.Nodes[:j.Forward] {
		if n.Kind == op.GroupNorm {
			stats = append(stats, n.Out[1:]...)
		}
	}
	_, back, err := j.Split(stats, nil)
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[op.Kind]int{}
	for _, n := range back.Nodes {
		kinds[n.Kind]++
	}
	// What the second norm makes is read by no gradient: where it cut off is found from its operands.
	if kinds[op.GroupNorm] != 0 || kinds[op.GroupNormAgain] != 1 || kinds[op.Conv] != 2 {
		t.Errorf("the backward has %v", kinds)
	}
	_, want := runSplit(t, j, j.Saved(), nil, in)
	_, got := runSplit(t, j, stats, nil, in)
	for role, list := range want {
		for i, a := range list {
			if !slices.Equal(a.F, got[role][i].F) {
				t.Errorf("%s %d differs from what all that is saved gives", role, i)
			}
		}
	}
}
