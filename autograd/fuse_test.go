package autograd_test

import (
	"math"
	"slices"
	"testing"

	"spillway/autograd"
	"spillway/dtype"
	"spillway/graph"
	"spillway/graph/graphtest"
	"spillway/internal/numtest"
	"spillway/op"
)

// layer is a transformer's layer with biases, whose q, k and v come from one matmul.
func layer(t *testing.T) *graph.Program {
	t.Helper()
	b := graph.NewBuilder("layer", graph.Config{})
	n := 0
	param := func(dims ...int64) graph.Value {
		n++
		return b.Param(string(rune('a'+n)), op.Type{DType: dtype.F32, Shape: dims}, false)
	}
	norm := func(x graph.Value) graph.Value {
		return b.Apply(op.LayerNorm, op.Attr{Eps: 1e-5, Bias: true}, x, param(8), param(8))[0]
	}
	x := b.Input(op.Type{DType: dtype.F32, Shape: []int64{2, 5, 8}})
	q := b.Split(b.Linear(norm(x), param(24, 8), param(24)), 8, 8, 8)
	o := b.Attention(op.Attr{Heads: 2, KVHeads: 2, Scale: 0.5}, q[0], q[1], q[2], graph.AttentionMasks{})
	x = b.Add(x, b.Linear(o, param(8, 8), param(8)))
	x = b.Add(x, b.Linear(b.Unary(op.GELU, b.Linear(norm(x), param(16, 8), param(16))), param(8, 16), param(8)))
	p, err := b.Program(graph.Carry, x)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// gradientsOf a program for the same numbers: outputs by name of their port.
func gradientsOf(t *testing.T, p *graph.Program, fuse bool) (map[string][]float64, []op.Kind) {
	t.Helper()
	all := func(op.Call) bool { return true }
	if fuse {
		p = graph.FuseTraining(p, all)
	}
	j, err := autograd.Differentiate(p, autograd.Options{InputGrad: true})
	if err != nil {
		t.Fatal(err)
	}
	if fuse {
		j.Fuse(all)
		if err := j.Program.Verify(); err != nil {
			t.Fatal(err)
		}
	}
	in := map[graph.Value]op.Array{}
	for i, port := range j.Program.Inputs {
		in[port.Value] = numtest.Random(j.Program.Type(port.Value), uint64(7+i))
	}
	got, err := graphtest.Run(j.Program, in, op.Args{})
	if err != nil {
		t.Fatal(err)
	}
	values, kinds := map[string][]float64{}, []op.Kind{}
	for _, port := range j.Program.Outputs {
		values[string(port.Role)+port.Name] = got[port.Value].F
	}
	for _, n := range j.Program.Nodes {
		kinds = append(kinds, n.Kind)
	}
	return values, kinds
}

// Fused ops of training give the gradients of those they stand for, and leave none of these.
func TestFusedTrainingHasTheSameGradients(t *testing.T) {
	p := layer(t)
	want, before := gradientsOf(t, p, false)
	got, after := gradientsOf(t, p, true)
	for name, list := range want {
		for i, f := range list {
			if len(got[name]) != len(list) || !(math.Abs(got[name][i]-f) <= 1e-12*max(1, math.Abs(f))) {
				t.Fatalf("%s: number %d of %d is %v, without fused ops %v", name, i, len(list), got[name], f)
			}
		}
	}
	for _, kind := range []op.Kind{op.JoinedAttention, op.JoinedAttentionGrad, op.LinearPlus, op.LayerNormGradPlus, op.UnaryGradSums} {
		if !slices.Contains(after, kind) {
			t.Errorf("no %s in %v", kind, after)
		}
	}
	for _, kind := range []op.Kind{op.Split, op.Concat, op.Add, op.Attention, op.LayerNormGrad, op.UnaryGrad} {
		if slices.Contains(after, kind) || !slices.Contains(before, kind) {
			t.Errorf("%s is in %v, or was not in %v", kind, after, before)
		}
	}
}

// A device without kernels for them keeps the program as it is.
func TestNothingIsFusedWithoutKernels(t *testing.T) {
	p := layer(t)
	if q := graph.FuseTraining(p, func(op.Call) bool { return false }); q != p {
		t.Errorf("the program has changed: %v", q.Nodes)
	}
}
