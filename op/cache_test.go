package op

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"spillway/dtype"
	"spillway/shape"
)

// A sequence computed over a cache, in chunks of any size and next to another sequence, is
// the attention of the whole sequence at once, with and without a window.
func TestCachedAttentionIsAttention(t *testing.T) {
	const length, heads, kv, d, page = 23, 4, 2, 6, 4
	r := rand.New(rand.NewPCG(1, 2))
	random := func(n int) Array {
		a := NewArray(f(1, length, n))
		for i := range a.F {
			a.F[i] = r.NormFloat64()
		}
		return a
	}
	for _, window := range []int64{0, 1, 5, 40} {
		attr := Attr{Heads: heads, KVHeads: kv, Scale: 0.4, Window: window}
		q, k, v := random(heads*d), random(kv*d), random(kv*d)
		whole := attr
		whole.Causal = true
		call, err := Make(Attention, whole, q.Type, k.Type, v.Type)
		if err != nil {
			t.Fatal(err)
		}
		want := []Array{NewArray(call.Out[0]), NewArray(call.Out[1])}
		if err := call.Reference([]Array{q, k, v}, want, Args{}); err != nil {
			t.Fatal(err)
		}
		for _, chunk := range []int{1, 3, 8, length} {
			table := 6
			if window == 5 { // a ring: the window and the chunk, wherever in a page they begin
				table = min(table, (5+chunk-1+page-2)/page+1)
			}
			got := runCached(t, attr, chunk, table, page, q, k, v)
			for i, x := range got {
				if math.Abs(x-want[0].F[i]) > 1e-6 { // the cache is in f32
					t.Fatalf("window %d, chunks of %d: element %d is %v, want %v", window, chunk, i, x, want[0].F[i])
				}
			}
		}
	}
}

// runCached computes a sequence in chunks, in slot 1 of a cache, next to idle rows.
func runCached(t *testing.T, attr Attr, chunk, table, page int, q, k, v Array) (all []float64) {
	t.Helper()
	rows, length := chunk+1, int(q.Type.Shape[1])
	part := func(a Array, from, to int) Array {
		n := int(a.Type.Shape.Last())
		b := NewArray(f(1, rows, n))
		copy(b.F, a.F[from*n:to*n])
		return b
	}
	kv := int(attr.KVHeads)
	held := f(2*table, kv, page, int(k.Type.Shape.Last())/kv)
	keys, values := NewArray(held), NewArray(held)
	pages := NewArray(i(2, table))
	for j := range pages.I {
		pages.I[j] = int32((j*7 + 3) % len(pages.I))
	}
	if table%7 == 0 {
		t.Fatal("pages repeat")
	}
	for from := 0; from < length; from += chunk {
		to := min(from+chunk, length)
		positions, sequences := NewArray(i(1, rows)), NewArray(i(1, rows))
		for j := range rows {
			positions.I[j], sequences.I[j] = int32(from+j), 1
			if from+j >= to {
				sequences.I[j] = -1
			}
		}
		in := []Array{part(q, from, to), part(k, from, to), part(v, from, to), keys, values, positions, sequences, pages}
		types := make([]Type, len(in))
		for j, a := range in {
			types[j] = a.Type
		}
		call, err := Make(CachedAttention, attr, types...)
		if err != nil {
			t.Fatal(err)
		}
		out := []Array{keys, values, NewArray(call.Out[2])}
		if err := call.Reference(in, out, Args{}); err != nil {
			t.Fatal(err)
		}
		n := int(q.Type.Shape.Last())
		all = append(all, out[2].F[:(to-from)*n]...)
		for _, x := range out[2].F[(to-from)*n:] {
			if x != 0 {
				t.Fatal("an idle row is not zero")
			}
		}
	}
	return all
}

func TestCachedAttentionRefuses(t *testing.T) {
	good := func() (Attr, []Type) {
		return Attr{Heads: 4, KVHeads: 2, Scale: 1}, []Type{f(1, 3, 32), f(1, 3, 16), f(1, 3, 16), f(5, 2, 4, 8), f(5, 2, 4, 8), i(1, 3), i(1, 3), i(2, 2)}
	}
	if a, in := good(); true {
		if _, err := Make(CachedAttention, a, in...); err != nil {
			t.Fatal(err)
		}
	}
	for want, spoil := range map[string]func(a *Attr, in []Type){
		"in 3 heads":                            func(a *Attr, _ []Type) { a.Heads = 3 },
		"a window of -1":                        func(a *Attr, _ []Type) { a.Window = -1 },
		"want [1 R H·D]":                        func(_ *Attr, in []Type) { in[0] = f(2, 3, 32) },
		"positions i32[1 4] do not fit 3 rows":  func(_ *Attr, in []Type) { in[5] = i(1, 4) },
		"cache f32[5 2 4 9], want [N 2 page 8]": func(_ *Attr, in []Type) { in[3] = f(5, 2, 4, 9) },
		"cache f32[6 2 4 8]":                    func(_ *Attr, in []Type) { in[4] = f(6, 2, 4, 8) },
		"a cache in f64":                        func(_ *Attr, in []Type) { in[4].DType = dtype.F64 },
		"a table [S P]":                         func(_ *Attr, in []Type) { in[7] = i(2, 0) },
		"element types differ":                  func(_ *Attr, in []Type) { in[0] = h(1, 3, 32) },
	} {
		a, in := good()
		spoil(&a, in)
		if _, err := Make(CachedAttention, a, in...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q in it", err, want)
		}
	}
}

// A decode step reads what its sequences have stored, once; a chunk reads it once for all
// its rows. A window bounds both.
func TestCostOfCachedAttention(t *testing.T) {
	cost := func(rows, window, filled int64) Cost {
		half := func(dims ...int64) Type { return Type{dtype.BF16, shape.Shape(dims)} }
		held, ids := half(4*128, 8, 64, 128), Type{dtype.I32, shape.Shape{1, rows}}
		call, err := Make(CachedAttention, Attr{Heads: 32, KVHeads: 8, Scale: 1, Window: window, Document: filled},
			half(1, rows, 4096), half(1, rows, 1024), half(1, rows, 1024), held, held, ids, ids, Type{dtype.I32, shape.Shape{4, 128}})
		if err != nil {
			t.Fatal(err)
		}
		return call.Cost()
	}
	const position = 2 * 8 * 128 * 2 // keys and values of a position, bf16
	fixed := func(rows int64) int64 { return rows * (position + 2*4096*2 + 2*1024*2 + 8) }
	for _, c := range []struct{ rows, window, filled, reads int64 }{
		{1, 0, 0, 8192}, {4, 0, 0, 4 * 8192}, {4, 0, 1000, 4000}, {4, 100, 1000, 400}, {512, 0, 1000, 1000},
	} {
		got := cost(c.rows, c.window, c.filled)
		if want := c.reads*position + fixed(c.rows); got.Bytes != want {
			t.Errorf("%+v: %d bytes, want %d", c, got.Bytes, want)
		}
	}
	if got := cost(2, 0, 1000).Flops; got != 4*2*1000*4096 {
		t.Errorf("%g operations of two rows", got)
	}
	if got, want := cost(512, 0, 1000).Flops, 4.*(512*488+512*513/2)*4096; got != want { // row i sees 489+i
		t.Errorf("%g operations of a chunk, want %g", got, want)
	}
}
