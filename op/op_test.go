package op

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"spillway/dtype"
	"spillway/quant"
	"spillway/shape"
)

func f(dims ...int) Type  { return Type{dtype.F32, shape.Of(dims...)} }
func h(dims ...int) Type  { return Type{dtype.BF16, shape.Of(dims...)} }
func i(dims ...int) Type  { return Type{dtype.I32, shape.Of(dims...)} }
func nf(dims ...int) Type { return Type{quant.NF4, shape.Of(dims...)} }

// Every kind says what is wrong with its operands, with both of what does not fit.
func TestRulesRefuse(t *testing.T) {
	heads := Attr{Heads: 2, KVHeads: 2}
	one := f(1)
	for _, c := range []struct {
		kind Kind
		attr Attr
		in   []Type
		want string
	}{
		{"", Attr{}, nil, `unknown op kind ""`},
		{"convolve", Attr{}, nil, `unknown op kind "convolve"; import the package`},
		{MatMul, Attr{}, []Type{f(2, 3)}, "takes 2 operands, got 1"},
		{MatMul, Attr{Bias: true}, []Type{f(2, 3), f(3, 4)}, "takes 3 operands, got 2"},
		{MatMul, Attr{}, []Type{f(2, 3), f(4, 3)}, "f32[2 3] times f32[4 3]: inner dimensions 3 and 4 differ"},
		{MatMul, Attr{TransB: true}, []Type{f(2, 3), f(3, 4)}, "inner dimensions 3 and 4 differ"},
		{MatMul, Attr{}, []Type{f(2, 3), h(3, 4)}, "element types differ"},
		{MatMul, Attr{}, []Type{f(2, 3), i(3, 4)}, "operand 1 is i32[3 4], want real numbers"},
		{MatMul, Attr{}, []Type{f(2, 3), nf(3, 4)}, "operand 1 is nf4[3 4], want real numbers"},
		{MatMul, Attr{Bias: true}, []Type{f(2, 3), f(3, 4), f(3)}, "operand 2 is f32[3], want [4]"},
		{MatMul, Attr{}, []Type{f(-2, 3), f(3, 4)}, "negative dimension -2"},
		{Embedding, Attr{}, []Type{f(2), f(3, 4)}, "operand 0 is f32[2], want i32"},
		{Embedding, Attr{}, []Type{i(2), f(4)}, "operand 1 is f32[4], want at least 2 dimensions"},
		{Embedding, Attr{}, []Type{i(2), f(0, 4)}, "without elements"},
		{EmbeddingGrad, Attr{Rows: 9}, []Type{i(2, 3), f(2, 4, 5)}, "ids i32[2 3] do not fit f32[2 4 5]"},
		{EmbeddingGrad, Attr{}, []Type{i(2), f(2, 5)}, "a table of 0 rows"},
		{Copy, Attr{}, []Type{i(2)}, "want real numbers"},
		{Add, Attr{}, []Type{f(2, 3), f(2)}, "f32[2 3] and f32[2]: the second must have the type of the first and the end of its shape"},
		{Mul, Attr{}, []Type{f(3), f(2, 3)}, "the second must have"},
		{Mul, Attr{}, []Type{f(2, 3), h(3)}, "the second must have"},
		{Unary, Attr{}, []Type{f(2)}, "has no function"},
		{Unary, Attr{Func: funcs}, []Type{f(2)}, "has no function func(32)"},
		{UnaryGrad, Attr{Func: ReLU}, []Type{f(2), f(3)}, "operands 0 and 1 are f32[2] and f32[3], want the same"},
		{GatedGrad, Attr{Func: ReLU}, []Type{f(2), f(2), f(3)}, "operands 0 and 2 are f32[2] and f32[3]"},
		{Dropout, Attr{Prob: 1}, []Type{f(2)}, "drop probability is 1, want 0 ≤ p < 1"},
		{Dropout, Attr{Prob: math.NaN()}, []Type{f(2)}, "drop probability is NaN"},
		{Cast, Attr{To: dtype.I32}, []Type{f(2)}, "to i32, want a plain real type"},
		{Dequantize, Attr{To: dtype.F32}, []Type{f(2)}, "operand 0 is f32[2], want a weight quantized as "},
		{Split, Attr{Sizes: []int64{2, 2}}, []Type{f(3, 5)}, "parts [2 2] add up to 4, that dimension of f32[3 5] is 5"},
		{Split, Attr{Sizes: []int64{5, 0}}, []Type{f(3, 5)}, "part 1 has size 0"},
		{Split, Attr{Sizes: []int64{1}}, []Type{f()}, "want at least 1 dimensions"},
		{Concat, Attr{}, nil, "takes operands"},
		{Concat, Attr{}, []Type{f()}, "has no dimension 0, counted from the last"},
		{Concat, Attr{}, []Type{f(2, 3), f(3, 3)}, "operand 1 is f32[3 3] next to f32[2 3]: only dimension 0, counted from the last, may differ"},
		{SumRows, Attr{InnerDims: 3}, []Type{f(2, 3)}, "keeps 3 dimensions of f32[2 3]"},
		{SumRows, Attr{}, []Type{f(2, 3)}, "keeps 0 dimensions"},
		{RMSNorm, Attr{}, []Type{f(2, 6), f(4)}, "weight f32[4] does not divide the last dimension of f32[2 6]"},
		{RMSNormGrad, Attr{}, []Type{f(2, 6), f(6), f(2, 5)}, "operands 0 and 2"},
		{LayerNorm, Attr{}, []Type{f(2, 6), f(3)}, "operand 1 is f32[3], want [6]"},
		{LayerNorm, Attr{Bias: true}, []Type{f(2, 6), f(6), f(5)}, "operands 1 and 2"},
		{Rope, Attr{Heads: 4}, []Type{f(2, 3, 6), i(2, 3), f(1)}, "4 heads do not divide f32[2 3 6]"},
		{Rope, Attr{Heads: 2}, []Type{f(2, 3, 6), i(2, 4), f(1)}, "positions i32[2 4] do not fit"},
		{Rope, Attr{Heads: 2}, []Type{f(2, 3, 6), i(2, 3), f(2)}, "frequencies f32[2] do not fit heads of 3 elements"},
		{Attention, heads, []Type{f(2, 4), f(2, 4), f(2, 4)}, "want [B T H·D]"},
		{Attention, Attr{Heads: 2, KVHeads: 3}, []Type{f(1, 2, 6), f(1, 2, 6), f(1, 2, 6)}, "in 2 heads and k f32[1 2 6] in 3 heads do not match"},
		{Attention, heads, []Type{f(1, 2, 6), h(1, 2, 6), h(1, 2, 6)}, "element types differ"},
		{Attention, Attr{Heads: 1, KVHeads: 1, Window: 3}, []Type{f(1, 2, 6), f(1, 2, 6), f(1, 2, 6)}, "window 3 needs causal"},
		{Attention, Attr{Heads: 1, KVHeads: 1, Causal: true}, []Type{f(1, 3, 6), f(1, 2, 6), f(1, 2, 6)}, "more queries (3) than keys (2)"},
		{Attention, Attr{Heads: 1, KVHeads: 1, Segments: true}, []Type{f(1, 2, 6), f(1, 2, 6), f(1, 2, 6)}, "takes 4 operands, got 3"},
		{Attention, Attr{Heads: 1, KVHeads: 1, Segments: true}, []Type{f(1, 2, 6), f(1, 2, 6), f(1, 2, 6), i(1, 3)}, "segments is i32[1 3], want i32[1 2]"},
		{Attention, Attr{Heads: 1, KVHeads: 1, Mask: true}, []Type{f(1, 2, 6), f(1, 5, 6), f(1, 5, 6), f(2, 2)}, "mask is f32[2 2], want f32[2 5], or with 1 or 1 heads before it, and 1 or 1 samples"},
		{Attention, Attr{Heads: 2, KVHeads: 2, Mask: true}, []Type{f(3, 2, 6), f(3, 5, 6), f(3, 5, 6), f(3, 3, 2, 5)}, "want f32[2 5], or with 1 or 2 heads before it, and 1 or 3 samples"},
		{AttentionMaskGrad, heads, []Type{f(1, 2, 6), f(1, 2, 6), f(1, 2, 6), f(1, 2, 6), f(1, 2, 2), f(1, 2, 6)}, "there is no mask"},
		{BatchMatMul, Attr{}, []Type{f(4), f(4, 2)}, "want at least 2 dimensions"},
		{BatchMatMul, Attr{}, []Type{f(2, 3, 4), f(2, 5, 6)}, "f32[2 3 4] times f32[2 5 6]: inner dimensions 4 and 5 differ"},
		{BatchMatMul, Attr{TransB: true}, []Type{f(2, 3, 4), f(3, 5, 4)}, "batches of f32[2 3 4] and f32[3 5 4]: shapes [2] and [3] do not fit together"},
		{BatchMatMul, Attr{}, []Type{f(2, 3, 4), h(2, 4, 6)}, "element types differ"},
		{AttentionGrad, heads, []Type{f(1, 2, 6), f(1, 2, 6), f(1, 2, 6), f(1, 2, 6), f(1, 2), f(1, 2, 6)}, "operand 4 is f32[1 2], want f32[1 2 2]"},
		{LinearCrossEntropy, Attr{}, []Type{f(4, 6), f(9, 5), i(4), one}, "f32[4 6] times the transpose of f32[9 5]"},
		{LinearCrossEntropy, Attr{}, []Type{f(4, 6), f(9, 6), i(5), one}, "i32[5] targets for 4 rows"},
		{LinearCrossEntropyGrad, Attr{}, []Type{f(4, 6), f(9, 6), i(4), one, f(2)}, "operand 4 is f32[2], want f32[1]"},
		{CrossEntropy, Attr{}, []Type{f(4, 6), i(5), one}, "i32[5] targets for 4 rows"},
		{CrossEntropyGrad, Attr{}, []Type{f(4, 6), i(4), one, h(1)}, "operand 3 is bf16[1], want f32[1]"},
		{MeanSquare, Attr{}, []Type{f(4), f(5), one}, "operands 0 and 1"},
		{MeanSquareGrad, Attr{}, []Type{f(4), f(4), f(4), one}, "operand 2 is f32[4], want f32[1]"},
		{SumSquares, Attr{}, []Type{i(4)}, "want real numbers"},
		{ClipScale, Attr{}, []Type{f(4)}, "want f64 partial sums"},
	} {
		_, err := Make(c.kind, c.attr, c.in...)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s%v: error %v, want %q in it", c.kind, c.in, err, c.want)
		}
	}
}

// No rule panics, whatever it is given.
func TestRulesSurviveAnyOperands(t *testing.T) {
	types := []Type{{}, f(), f(1), f(0), f(2, 3), f(0, 0), i(2), i(), f(1, 2, 4), nf(64), {dtype.Type(99), shape.Of(2)}}
	attrs := []Attr{{}, {Bias: true}, {TransA: true, TransB: true}, {Heads: 2, KVHeads: 1, Segments: true}, {Heads: 1, KVHeads: 1, Causal: true},
		{Sizes: []int64{1, 2}, InnerDims: 1, Rows: 3, Func: SiLU, To: dtype.F16}, {InnerDims: -1, Rows: -1, Heads: -1, Func: 200, To: 200}}
	for _, kind := range Kinds() {
		for n := range 7 {
			for k := range types {
				for _, a := range attrs {
					in := make([]Type, n)
					for j := range in {
						in[j] = types[(k+j*n)%len(types)]
					}
					if call, err := Make(kind, a, in...); err == nil {
						call.Cost()
					}
				}
			}
		}
	}
}

func TestCheckComparesOutputs(t *testing.T) {
	c, err := Make(MatMul, Attr{}, f(2, 3), f(3, 4))
	if err != nil || c.Check() != nil || c.String() != "matmul(f32[2 3], f32[3 4]) f32[2 4]" {
		t.Fatal(c, err)
	}
	c.Out = []Type{f(2, 5)}
	if err := c.Check(); err == nil || !strings.Contains(err.Error(), "output 0 is f32[2 5], its rule gives f32[2 4]") {
		t.Error(err)
	}
	c.Out = nil
	if c.Check() == nil {
		t.Error("a call without outputs passes")
	}
}

func TestCallsAreReadByTheNamesOfTheirKinds(t *testing.T) {
	call, err := Make(Unary, Attr{Func: GELUTanh}, f(2))
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(call)
	if !strings.Contains(string(raw), `"kind":"unary"`) {
		t.Errorf("%s does not name the kind", raw)
	}
	var back Call
	if err != nil || json.Unmarshal(raw, &back) != nil || back.Kind != Unary || back.Attr.Func != GELUTanh || !back.Out[0].Equal(f(2)) {
		t.Errorf("%s reads as %+v (%v)", raw, back, err)
	}
	for _, bad := range []string{`{"kind":"mul","attr":{"func":"sinc"}}`, `{"kind":"divide"}`, `{"kind":""}`} {
		if json.Unmarshal([]byte(bad), &back) == nil {
			t.Errorf("read %s", bad)
		}
	}
}

// Costs by formula, written out for shapes where all factors differ.
func TestCosts(t *testing.T) {
	grouped := Attr{Heads: 4, KVHeads: 2, Causal: true}
	windowed := grouped
	windowed.Window = 3
	q, k := h(2, 5, 24), h(2, 9, 12)
	lse := f(2, 4, 5)
	for _, c := range []struct {
		name  string
		kind  Kind
		attr  Attr
		in    []Type
		flops float64
		bytes int64
	}{
		{"product", MatMul, Attr{TransB: true, Bias: true}, []Type{h(2, 3, 5), h(7, 5), h(7)}, 2 * 6 * 7 * 5, 2 * (30 + 35 + 7 + 42)},
		{"table rows read alone", Embedding, Attr{}, []Type{i(6), f(1000, 4)}, 0, 4*6 + 2*4*24},
		{"table gradient", EmbeddingGrad, Attr{Rows: 1000, Accumulate: true}, []Type{i(6), f(6, 4)}, 24, 4*6 + 3*4*24},
		{"table gradient, zeroed first", EmbeddingGrad, Attr{Rows: 1000}, []Type{i(6), f(6, 4)}, 24, 4*6 + 3*4*24 + 16000},
		{"elementwise", Add, Attr{}, []Type{f(3, 4), f(4)}, 12, 4 * (12 + 4 + 12)},
		{"causal pairs: 5 of the 9 keys each, less what lies ahead", Attention, grouped, []Type{q, k, k}, 4 * 24 * 2 * (5 + 6 + 7 + 8 + 9), 2*(240+216+216+240) + 4*40},
		{"a window of 3", Attention, windowed, []Type{q, k, k}, 4 * 24 * 2 * (5 * 3), 2*(240+216+216+240) + 4*40},
		{"attention gradient", AttentionGrad, grouped, []Type{q, k, k, q, lse, q}, 10 * 24 * 2 * 35, 2*(3*240+2*216) + 4*40 + 2*(240+2*216)},
		{"fused loss", LinearCrossEntropy, Attr{}, []Type{f(4, 6), f(9, 6), i(4), f(1)}, 2 * 4 * 6 * 9, 4 * (24 + 54 + 4 + 1 + 1)},
		{"fused loss gradient", LinearCrossEntropyGrad, Attr{}, []Type{f(4, 6), f(9, 6), i(4), f(1), f(1)}, 3 * 2 * 4 * 6 * 9, 4 * (24 + 54 + 4 + 1 + 1 + 1 + 24 + 54)},
		{"of a frozen head", LinearCrossEntropyGrad, Attr{InputOnly: true}, []Type{f(4, 6), f(9, 6), i(4), f(1), f(1)}, 2 * 2 * 4 * 6 * 9, 4 * (24 + 54 + 4 + 1 + 1 + 1 + 24)},
	} {
		call, err := Make(c.kind, c.attr, c.in...)
		if err != nil {
			t.Fatal(err)
		}
		if got := call.Cost(); got.Flops != c.flops || got.Bytes != c.bytes {
			t.Errorf("%s: %v flops and %d bytes, want %v and %d", c.name, got.Flops, got.Bytes, c.flops, c.bytes)
		}
	}
}

// Pairs counted one by one agree with the cost's formula.
func TestAttentionPairs(t *testing.T) {
	for _, w := range []int64{0, 1, 2, 3, 5, 8, 12} {
		for queries := 1; queries <= 6; queries++ {
			for keys := queries; keys <= 8; keys++ {
				attr := Attr{Heads: 1, KVHeads: 1, Causal: true, Window: w}
				call, err := Make(Attention, attr, f(1, queries, 2), f(1, keys, 2), f(1, keys, 2))
				if err != nil {
					t.Fatal(err)
				}
				a := newAttention(call, []Array{{}, {}, {}}, 3, Args{})
				var seen float64
				for q := range a.t {
					for k := range a.s {
						if a.sees(0, q, k) {
							seen++
						}
					}
				}
				if got := attentionPairs(call); got != seen {
					t.Errorf("%d queries, %d keys, window %d: cost counts %v pairs, there are %v", queries, keys, w, got, seen)
				}
			}
		}
	}
}

func TestAccumulatingOutputsAreTheSummedOnes(t *testing.T) {
	for _, c := range []struct {
		kind Kind
		attr Attr
		want []int
	}{
		{MatMul, Attr{}, []int{0}}, {Unary, Attr{}, nil}, {"convolve", Attr{}, nil},
		{RMSNormGrad, Attr{}, []int{1}}, {RMSNormGrad, Attr{InputOnly: true}, nil},
		{LayerNormGrad, Attr{Bias: true}, []int{1, 2}},
		{LinearCrossEntropyGrad, Attr{}, []int{2}}, {LinearCrossEntropyGrad, Attr{InputOnly: true}, nil},
	} {
		if got := c.kind.Accumulates(c.attr); !slices.Equal(got, c.want) {
			t.Errorf("%s %+v: %v, want %v", c.kind, c.attr, got, c.want)
		}
	}
}

// Attention that drops weights is a variant of its own; all other kinds are one each.
func TestVariantsReadTheirNames(t *testing.T) {
	for _, k := range Kinds() {
		for _, v := range []Variant{{Kind: k}, {Kind: k, Dropout: true}} {
			var back Variant
			text, err := v.MarshalText()
			if err != nil || back.UnmarshalText(text) != nil || back != v {
				t.Errorf("%v is written as %s and read as %v (%v)", v, text, back, err)
			}
		}
		if got := (Call{Kind: k, Attr: Attr{Prob: 0.1}}).Variant(); got.Dropout != (k == Attention || k == AttentionGrad) {
			t.Errorf("%v with a probability is the variant %v", k, got)
		}
	}
	var v Variant
	if err := v.UnmarshalText([]byte("hope+dropout")); err == nil || !strings.Contains(err.Error(), "hope") {
		t.Errorf("hope+dropout is read as %v, %v", v, err)
	}
}

// Attention over packed documents costs what the tiles take in which some pair is of one
// document: counted tile by tile, compared with the formula.
func TestAttentionPairsOfDocuments(t *testing.T) {
	const tile, n = 64, 2048
	for _, window := range []int64{0, 256} {
		for _, document := range []int64{70, 150, 300, 700, 2048} {
			tiles := func(d int64) (count float64) {
				for q := int64(0); q < n; q += tile {
					for k := int64(0); k <= q; k += tile {
						last := min(k+tile-1, q+tile-1) // the latest key that some query of the tile sees
						if (q/d <= last/d) && (window == 0 || last > q-window) {
							count++
						}
					}
				}
				return count
			}
			attr := Attr{Heads: 1, KVHeads: 1, Causal: true, Window: window, Segments: true}
			call, err := Make(Attention, attr, f(1, n, 2), f(1, n, 2), f(1, n, 2), i(1, n))
			if err != nil {
				t.Fatal(err)
			}
			whole := attentionPairs(call)
			call.Attr.Document = document
			got, want := attentionPairs(call)/whole, tiles(document)/tiles(n)
			if math.Abs(got-want) > 0.25*want {
				t.Errorf("documents of %d, window %d: %.3f of the pairs of one document, tiles say %.3f", document, window, got, want)
			}
		}
	}
}
