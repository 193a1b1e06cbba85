package graph_test

import (
	"testing"

	"spillway/dtype"
	"spillway/graph"
	"spillway/graph/graphtest"
	"spillway/internal/numtest"
	"spillway/op"
)

// Norms with what follows them give the numbers of the plain ops, and only where nothing else reads what lies between.
func TestFuseNorms(t *testing.T) {
	real := func(dims ...int64) op.Type { return op.Type{DType: dtype.F32, Shape: dims} }
	relu := func(b *graph.Builder, x graph.Value) graph.Value { return b.Map(op.ReLU, 0, 0, x) }
	batch := func(b *graph.Builder, x graph.Value, name string) graph.Value {
		w, bias := b.Param(name+".w", real(4), false), b.Param(name+".b", real(4), false)
		return b.BatchNorm(x, w, bias, b.Param(name+".mean", real(4), false), b.Param(name+".var", real(4), false), 1e-5)
	}
	for _, c := range []struct {
		name        string
		nodes, sums int // of the fused program, and how many norms of it add something
		build       func(b *graph.Builder, x graph.Value) []graph.Value
	}{
		{"relu", 1, 0, func(b *graph.Builder, x graph.Value) []graph.Value { return []graph.Value{relu(b, batch(b, x, "n"))} }},
		{"group", 1, 0, func(b *graph.Builder, x graph.Value) []graph.Value {
			return []graph.Value{relu(b, b.GroupNorm(x, 2, 0, 0, 1e-5))}
		}},
		{"sum", 1, 1, func(b *graph.Builder, x graph.Value) []graph.Value {
			return []graph.Value{relu(b, b.Add(batch(b, x, "n"), x))}
		}},
		{"sum the other way", 1, 1, func(b *graph.Builder, x graph.Value) []graph.Value {
			return []graph.Value{relu(b, b.Add(x, batch(b, x, "n")))}
		}},
		{"two norms", 2, 1, func(b *graph.Builder, x graph.Value) []graph.Value {
			return []graph.Value{relu(b, b.Add(batch(b, x, "n"), batch(b, x, "m")))}
		}},
		{"read twice", 2, 0, func(b *graph.Builder, x graph.Value) []graph.Value {
			y := batch(b, x, "n")
			return []graph.Value{relu(b, y), y}
		}},
		{"repeated", 3, 0, func(b *graph.Builder, x graph.Value) []graph.Value {
			return []graph.Value{relu(b, b.Add(batch(b, x, "n"), b.Param("row", real(4), false)))}
		}},
		{"another function", 2, 0, func(b *graph.Builder, x graph.Value) []graph.Value {
			return []graph.Value{b.Map(op.Tanh, 0, 0, batch(b, x, "n"))}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := graph.NewBuilder(c.name, graph.Config{})
			p, err := b.Program(graph.Carry, c.build(b, b.Input(real(2, 3, 3, 4)))...)
			if err != nil {
				t.Fatal(err)
			}
			before := len(p.Nodes)
			f := graph.FuseNorms(p)
			if err := f.Verify(); err != nil {
				t.Fatal(err)
			}
			sums := 0
			for _, n := range f.Nodes {
				if n.Attr.Plus {
					sums++
				}
			}
			if len(f.Nodes) != c.nodes || sums != c.sums || len(p.Nodes) != before {
				t.Errorf("%d nodes with %d sums, %d in the program it was made from; want %d, %d, %d", len(f.Nodes), sums, len(p.Nodes), c.nodes, c.sums, before)
			}
			run := func(p *graph.Program) (out []op.Array) {
				in := map[graph.Value]op.Array{}
				for i, port := range p.Inputs {
					in[port.Value] = numtest.Random(p.Type(port.Value), uint64(i))
				}
				all, err := graphtest.Run(p, in, op.Args{})
				if err != nil {
					t.Fatal(err)
				}
				for _, port := range p.Outputs {
					out = append(out, all[port.Value])
				}
				return out
			}
			want, got := run(p), run(f)
			for i := range want {
				if d := numtest.Compare(got[i].F, want[i].F); d.Max > 1e-14 {
					t.Errorf("output %d is %v from that of the plain ops", i, d)
				}
			}
		})
	}
}
