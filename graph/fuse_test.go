package graph_test

import (
	"math"
	"slices"
	"testing"

	"spillway/dtype"
	"spillway/graph"
	"spillway/op"
	"spillway/quant"
	"spillway/shape"
)

// layer is a block of the Llama family by hand, as a program of a step, with weights held in a type.
func layer(t *testing.T, rows int64, bias bool, held dtype.Type) *graph.Program {
	t.Helper()
	p := &graph.Program{Name: "layer", Types: make([]op.Type, 1)}
	value := func(d dtype.Type, dims ...int64) graph.Value {
		p.Types = append(p.Types, op.Type{DType: d, Shape: shape.Shape(dims)})
		return graph.Value(len(p.Types) - 1)
	}
	input := func(role graph.Role, name string, d dtype.Type, dims ...int64) graph.Value {
		v := value(d, dims...)
		port := graph.Port{Value: v, Role: role, Index: len(graph.Ports(p.Inputs, role)), Name: name}
		if role == graph.Const {
			port.Data = make([]byte, p.Types[v].Bytes())
		}
		p.Inputs = append(p.Inputs, port)
		return v
	}
	apply := func(kind op.Kind, a op.Attr, in ...graph.Value) []graph.Value {
		types := make([]op.Type, len(in))
		for i, v := range in {
			types[i] = p.Types[v]
		}
		c, err := op.Make(kind, a, types...)
		if err != nil {
			t.Fatal(err)
		}
		n := graph.Node{Kind: kind, Attr: a, In: in}
		for _, o := range c.Out {
			n.Out = append(n.Out, value(o.DType, o.Shape...))
		}
		p.Nodes = append(p.Nodes, n)
		return n.Out
	}
	const w, d, heads, kv, inner = 64, 16, 4, 2, 96
	half := func(role graph.Role, name string, dims ...int64) graph.Value {
		return input(role, name, dtype.BF16, dims...)
	}
	x := half(graph.Carry, "", 1, rows, w)
	positions, sequences, pages := input(graph.Batch, "positions", dtype.I32, 1, rows), input(graph.Batch, "sequences", dtype.I32, 1, rows), input(graph.Batch, "pages", dtype.I32, 4, 3)
	keys, values := half(graph.Cache, "keys", 12, kv, 8, d), half(graph.Cache, "values", 12, kv, 8, d)
	freq := input(graph.Const, "rope", dtype.F32, d/2)
	line := func(x graph.Value, name string, out, in int64, bias bool) graph.Value {
		kind, a := op.MatMul, op.Attr{TransB: true, Bias: bias}
		if held.Block() {
			kind, a = op.QuantizedMatmul, op.Attr{Bias: bias}
		}
		operands := []graph.Value{x, input(graph.Param, name, held, out, in)}
		if bias {
			operands = append(operands, half(graph.Param, name+".bias", out))
		}
		return apply(kind, a, operands...)[0]
	}
	norm := func(x graph.Value, name string) graph.Value {
		return apply(op.RMSNorm, op.Attr{Eps: 1e-5}, x, half(graph.Param, name, w))[0]
	}
	n := norm(x, "norm1")
	q := apply(op.Rope, op.Attr{Heads: heads}, line(n, "q", heads*d, w, bias), positions, freq)[0]
	k := apply(op.Rope, op.Attr{Heads: kv}, line(n, "k", kv*d, w, bias), positions, freq)[0]
	v := line(n, "v", kv*d, w, bias)
	o := apply(op.CachedAttention, op.Attr{Heads: heads, KVHeads: kv, Scale: 0.25}, q, k, v, keys, values, positions, sequences, pages)
	y := apply(op.Add, op.Attr{}, x, line(o[2], "o", w, heads*d, false))[0]
	n = norm(y, "norm2")
	gated := apply(op.Gated, op.Attr{Func: op.SiLU}, line(n, "gate", inner, w, false), line(n, "up", inner, w, false))[0]
	z := apply(op.Add, op.Attr{}, line(gated, "down", w, inner, false), y)[0]
	p.Outputs = []graph.Port{{Value: z, Role: graph.Carry}, {Value: o[0], Role: graph.Cache, Name: "keys"}, {Value: o[1], Role: graph.Cache, Name: "values", Index: 1}}
	if err := p.Verify(); err != nil {
		t.Fatal(err)
	}
	return p
}

func kinds(p *graph.Program) (list []op.Kind) {
	for _, n := range p.Nodes {
		list = append(list, n.Kind)
	}
	return list
}

// run computes a program by the references of its ops.
func run(t *testing.T, p *graph.Program) map[string][]float64 {
	t.Helper()
	arrays := make([]op.Array, len(p.Types))
	for i, in := range p.Inputs {
		a := op.NewArray(p.Types[in.Value])
		for k := range a.F {
			a.F[k] = float64(op.Uniform(uint64(i), 1, uint64(k))) - 0.5
		}
		for k := range a.I {
			switch in.Name {
			case "positions":
				a.I[k] = []int32{9, 0, 4}[k]
			case "sequences":
				a.I[k] = []int32{1, 3, 0}[k]
			default:
				a.I[k] = int32((k*7 + 2) % 12)
			}
		}
		a.Round()
		arrays[in.Value] = a
	}
	for _, n := range p.Nodes {
		c := p.Call(n)
		in, out := make([]op.Array, len(n.In)), make([]op.Array, len(n.Out))
		for i, v := range n.In {
			in[i] = arrays[v]
		}
		for i, v := range n.Out {
			out[i] = op.NewArray(p.Types[v])
			arrays[v] = out[i]
		}
		if err := c.Reference(in, out, op.Args{}); err != nil {
			t.Fatal(err)
		}
		for _, o := range out {
			o.Round()
		}
	}
	results := map[string][]float64{}
	for _, o := range p.Outputs {
		results[string(o.Role)+o.Name] = arrays[o.Value].F
	}
	return results
}

// A layer becomes five ops that compute the same, up to the one rounding that a sum within
// a matmul saves.
func TestFuse(t *testing.T) {
	all := func(op.Call) bool { return true }
	for _, c := range []struct {
		bias bool
		held dtype.Type
	}{{false, dtype.BF16}, {true, dtype.BF16}, {false, quant.NF4}, {true, quant.NF4}} {
		p, sum := layer(t, 3, c.bias, c.held), op.MatMul
		if c.held.Block() {
			sum = op.QuantizedPlus
		}
		before := kinds(p)
		f := graph.Fuse(p, all)
		if err := f.Verify(); err != nil {
			t.Fatal(err)
		}
		if want := []op.Kind{op.NormHeads, op.AttendCache, sum, op.NormGated, sum}; !slices.Equal(kinds(f), want) {
			t.Errorf("fused to %v, want %v", kinds(f), want)
		}
		if !slices.Equal(kinds(p), before) || p.Verify() != nil {
			t.Error("the program itself was changed")
		}
		for _, n := range f.Nodes {
			if n.Kind == op.MatMul && (!n.Attr.Constant || !n.Attr.Plus) {
				t.Errorf("a matmul %+v", n.Attr)
			}
		}
		want, got := run(t, p), run(t, f)
		for name, list := range want {
			for i, x := range list {
				if d := x - got[name][i]; math.Abs(d) > 0.02*max(1, math.Abs(x)) {
					t.Fatalf("%s element %d is %g, unfused %g", name, i, got[name][i], x)
				}
			}
		}
	}
}

// Without kernels, with many rows, and where a value is used elsewhere, programs stay as they are.
func TestFuseLeavesAlone(t *testing.T) {
	all := func(op.Call) bool { return true }
	if p := layer(t, 3, false, dtype.BF16); graph.Fuse(p, func(op.Call) bool { return false }) != p {
		t.Error("fused without kernels")
	}
	if p := layer(t, graph.FewRows+1, false, dtype.BF16); graph.Fuse(p, all) != p {
		t.Error("fused many rows")
	}
	p := layer(t, 3, false, dtype.BF16)
	for _, n := range p.Nodes {
		if n.Kind == op.RMSNorm { // somebody else wants the norms
			p.Outputs = append(p.Outputs, graph.Port{Value: n.Out[0], Role: graph.Result, Index: len(p.Outputs)})
		}
	}
	if graph.Fuse(p, all) != p {
		t.Error("fused values that are used elsewhere")
	}
}
