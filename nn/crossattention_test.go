package nn_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"spillway/dtype"
	"spillway/graph"
	"spillway/graph/graphtest"
	"spillway/internal/numtest"
	"spillway/nn"
	"spillway/op"
	"spillway/shape"
)

// run gives the numbers of a value that model code makes of named parts.
func run(t *testing.T, parts map[string]op.Array, build func(b *graph.Builder, in map[string]graph.Value) graph.Value) []float64 {
	t.Helper()
	b := graph.NewBuilder("test", graph.Config{MicroBatchSize: 2, Seq: 3, DType: dtype.F32})
	in, values := map[string]graph.Value{}, map[graph.Value]op.Array{}
	for name, a := range parts {
		in[name] = b.Part(name, a.Type.DType, a.Type.Shape...)
		values[in[name]] = a
	}
	out := build(b, in)
	p, err := b.Program(graph.Carry, out)
	if err != nil {
		t.Fatal(err)
	}
	all, err := graphtest.Run(p, values, op.Args{})
	if err != nil {
		t.Fatal(err)
	}
	return all[out].F
}

func real(seed uint64, dims ...int) op.Array {
	return numtest.Random(op.Type{DType: dtype.F32, Shape: shape.Of(dims...)}, seed)
}

func same(t *testing.T, what string, got, want []float64) {
	t.Helper()
	if d := numtest.Compare(got, want); !(d.Max <= 1e-6) {
		t.Errorf("%s: %v from the formula", what, d)
	}
}

// The forms of rotary positions, element by element: pairs of neighbours or of halves, of a part of a head.
func TestRotationsOfPublishedForms(t *testing.T) {
	const heads, width, dims = 2, 6, 4
	x, positions := real(1, 2, 3, heads*width), op.NewArray(op.Type{DType: dtype.I32, Shape: shape.Of(2, 3)})
	for i := range positions.I {
		positions.I[i] = int32(i * 2)
	}
	freq := []float32{0.7, 0.1}
	for form, pair := range map[nn.RopeForm]func(i int) (int, int){
		nn.HalfRope:        func(i int) (int, int) { return i, i + dims/2 },
		nn.InterleavedRope: func(i int) (int, int) { return 2 * i, 2*i + 1 },
	} {
		want := x.Clone().F
		for row := range 6 {
			for h := range heads {
				for i, f := range freq {
					a, b := pair(i)
					head := row*heads*width + h*width
					sin, cos := math.Sincos(float64(positions.I[row]) * float64(f))
					want[head+a] = x.F[head+a]*cos - x.F[head+b]*sin
					want[head+b] = x.F[head+b]*cos + x.F[head+a]*sin
				}
			}
		}
		got := run(t, map[string]op.Array{"x": x, "positions": positions}, func(b *graph.Builder, in map[string]graph.Value) graph.Value {
			return nn.RotatePartly(b, &nn.Rope{Freq: freq}, form, in["x"], heads, dims)
		})
		same(t, string(form), got, want)
	}
}

// Sections of a head turn by positions of their own, in both forms.
func TestRotationsBySections(t *testing.T) {
	const heads = 2
	sections := [][]float32{{1, 0.5}, {0.3}, {0.2, 0.1, 0.05}}
	of := []int{0, 0, 1, 2, 2, 2}
	x := real(1, 2, 3, heads*12)
	for _, form := range []nn.RopeForm{nn.HalfRope, nn.InterleavedRope} {
		want, values := x.Clone().F, map[string]op.Array{"x": x}
		var places [3][]int32
		for i := range places {
			places[i] = []int32{int32(i), 4, 7, 2, int32(3 * i), 1}
			values[fmt.Sprint("p", i)] = op.Array{Type: op.Type{DType: dtype.I32, Shape: shape.Of(2, 3)}, I: places[i]}
		}
		for row := range 6 {
			for h := range heads {
				for i, f := range slices.Concat(sections...) {
					a, b := i, i+6
					if form == nn.InterleavedRope {
						a, b = 2*i, 2*i+1
					}
					head := (row*heads + h) * 12
					sin, cos := math.Sincos(float64(places[of[i]][row]) * float64(f))
					want[head+a] = x.F[head+a]*cos - x.F[head+b]*sin
					want[head+b] = x.F[head+b]*cos + x.F[head+a]*sin
				}
			}
		}
		got := run(t, values, func(b *graph.Builder, in map[string]graph.Value) graph.Value {
			list := make([]nn.RopeSection, 3)
			for i := range list {
				list[i] = nn.RopeSection{Positions: in[fmt.Sprint("p", i)], Freq: sections[i]}
			}
			return nn.RotateSections(b, form, in["x"], heads, list...)
		})
		same(t, string(form), got, want)
	}
}

// Queries look at something else where a mask of ones and zeros allows it.
func TestCrossAttentionWithAMask(t *testing.T) {
	q, k, v := real(1, 1, 2, 4), real(2, 1, 3, 4), real(3, 1, 3, 4)
	allowed := op.Array{Type: op.Type{DType: dtype.F32, Shape: shape.Of(2, 3)}, F: []float64{1, 0, 1, 0, 1, 1}}
	got := run(t, map[string]op.Array{"q": q, "k": k, "v": v, "allowed": allowed}, func(b *graph.Builder, in map[string]graph.Value) graph.Value {
		mask := nn.Allowed(b, in["allowed"])
		return b.Attention(op.Attr{Heads: 2, KVHeads: 2, Scale: 0.5}, in["q"], in["k"], in["v"], graph.AttentionMasks{Mask: mask})
	})
	want := make([]float64, 8)
	for i := range 2 {
		for h := range 2 {
			var weights [3]float64
			sum := 0.0
			for s := range 3 {
				if allowed.F[i*3+s] == 0 {
					continue
				}
				weights[s] = math.Exp(0.5 * (q.F[i*4+2*h]*k.F[s*4+2*h] + q.F[i*4+2*h+1]*k.F[s*4+2*h+1]))
				sum += weights[s]
			}
			for s, w := range weights {
				for e := range 2 {
					want[i*4+2*h+e] += w / sum * v.F[s*4+2*h+e]
				}
			}
		}
	}
	same(t, "attention", got, want)
}

// A mask that is the same for all queries is repeated: padding, written as PyTorch's attn_mask [B 1 1 S].
func TestMasksOfKeys(t *testing.T) {
	q, k := real(1, 2, 3, 4), real(2, 2, 5, 4)
	seen := op.Array{Type: op.Type{DType: dtype.I32, Shape: shape.Of(2, 5)}, I: []int32{1, 1, 1, 0, 0, 1, 0, 1, 1, 1}}
	attend := func(masks func(b *graph.Builder, seen graph.Value) graph.AttentionMasks) []float64 {
		return run(t, map[string]op.Array{"q": q, "k": k, "seen": seen}, func(b *graph.Builder, in map[string]graph.Value) graph.Value {
			return b.Attention(op.Attr{Heads: 2, KVHeads: 2, Scale: 0.5}, in["q"], in["k"], in["k"], masks(b, in["seen"]))
		})
	}
	want := attend(func(b *graph.Builder, seen graph.Value) graph.AttentionMasks {
		return graph.AttentionMasks{KeyMask: seen}
	})
	got := attend(func(b *graph.Builder, seen graph.Value) graph.AttentionMasks {
		return graph.AttentionMasks{Mask: nn.Allowed(b, b.Reshape(seen, 2, 1, 1, 5))}
	})
	same(t, "mask of keys", got, want)
	got = attend(func(b *graph.Builder, seen graph.Value) graph.AttentionMasks {
		return graph.AttentionMasks{KeyMask: seen, Mask: b.Floats("zeros", make([]float32, 5))}
	})
	same(t, "mask of nothing", got, want)
}

// Masks may be of samples, of heads or of both: each has what attention with that mask alone gives, also where heads share keys and values.
func TestMasksOfSamplesAndHeads(t *testing.T) {
	const samples, queries, keys, heads, shared, width = 2, 3, 4, 4, 2, 2
	q, k, v := real(1, samples, queries, heads*width), real(2, samples, keys, shared*width), real(3, samples, keys, shared*width)
	seen := op.Array{Type: op.Type{DType: dtype.I32, Shape: shape.Of(samples, keys)}, I: []int32{1, 1, 1, 0, 1, 1, 1, 1}}
	for _, size := range [][2]int{{1, 1}, {samples, 1}, {1, heads}, {samples, heads}} {
		mask := real(4, size[0], size[1], queries, keys)
		mask.F[1], mask.F[len(mask.F)-3] = math.Inf(-1), math.Inf(-1)
		got := run(t, map[string]op.Array{"q": q, "k": k, "v": v, "mask": mask, "seen": seen}, func(b *graph.Builder, in map[string]graph.Value) graph.Value {
			return b.Attention(op.Attr{Heads: heads, KVHeads: shared, Scale: 0.5}, in["q"], in["k"], in["v"], graph.AttentionMasks{Mask: in["mask"], KeyMask: in["seen"]})
		})
		want := make([]float64, samples*queries*heads*width)
		for row := range samples * queries * heads {
			sample, i, h := row/heads/queries, row/heads%queries, row%heads
			added := mask.F[((sample%size[0]*size[1]+h%size[1])*queries+i)*keys:]
			var weights [keys]float64
			sum := 0.0
			for s := range keys {
				at := (sample*keys+s)*shared*width + h*shared/heads*width
				dot := 0.0
				for e := range width {
					dot += q.F[row*width+e] * k.F[at+e]
				}
				if seen.I[sample*keys+s] != 0 {
					weights[s] = math.Exp(0.5*dot + added[s])
				}
				sum += weights[s]
			}
			for s, w := range weights {
				for e := range width {
					want[row*width+e] += w / sum * v.F[(sample*keys+s)*shared*width+h*shared/heads*width+e]
				}
			}
		}
		same(t, "attention", got, want)
	}
}
