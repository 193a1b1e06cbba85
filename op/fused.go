package op

import (
	"fmt"

	"spillway/dtype"
	"spillway/quant"
)

// Fused ops are several ops at once, for steps of few rows: there the time is that of reading
// the weights, and every op more is a pause. A program has them only where the device has kernels
// for them (graph.Fuse); elsewhere it keeps the ops they stand for, which are also their
// reference. Their matrices are weights that nothing writes during a step, so a kernel
// may read them before what precedes it is done. They are plain, or in block formats: as
// QuantizedMatmul reads them.

// NormHeads is what attention over a cache needs of a block's input: the norm, q, k and v,
// rotary positions, and k and v stored in the cache. Rows are idle as in CachedAttention; the q
// of an idle row is rotated by its position all the same.
//
//	operands  x [1 R W], norm [W], weights of q [H·D W], of k and v [K·D W], freq [F] f32,
//	          cache_k, cache_v [N K page D], positions, sequences [1 R] i32, pages [S P] i32,
//	          then with Attr.Bias those of q, k and v
//	outputs   cache_k, cache_v in place, q [1 R H·D]
//
// Attr has Eps of the norm, and Scale of the rotation.
const NormHeads Kind = "norm_heads"

// AttendCache is CachedAttention without k and v, which are in the cache already.
//
//	operands  q [1 R H·D], cache_k, cache_v, positions, sequences, pages
//	output    o [1 R H·D]
const AttendCache Kind = "attend_cache"

// NormGated is Gated of two matmuls with the norm of x.
//
//	operands  x [.. W], norm [W], weights of gate and up [N W]
//	output    [.. N]
const NormGated Kind = "norm_gated"

// QuantizedPlus is QuantizedMatmul and the sum with something else.
//
//	operands  x [.. K], W [N K] in a type of quant.Weights, plus [.. N]
//	output    [.. N]
const QuantizedPlus Kind = "quantized_plus"

func init() {
	Register(Op{Kind: NormHeads, Fused: true, Infer: inferNormHeads, Cost: costNormHeads, Reference: referenceNormHeads,
		InPlace: func(Call) []int { return []int{6, 7} }, Cases: (*CaseList).normHeads})
	Register(Op{Kind: AttendCache, Fused: true, Takes: 6, Infer: inferAttendCache, Cost: costAttendCache, Reference: referenceAttendCache, Cases: (*CaseList).attendCache})
	Register(Op{Kind: NormGated, Fused: true, Takes: 4, Infer: inferNormGated, Cost: costNormGated, Reference: referenceNormGated, Cases: (*CaseList).normGated})
	Register(Op{Kind: QuantizedPlus, Fused: true, Takes: 3, Infer: inferQuantizedPlus, Cost: costQuantizedMatmul, Reference: referenceQuantizedPlus, Cases: (*CaseList).quantizedPlus})
}

// line is the op of a matmul with a weight, plain or in a block format.
func line(weight Type, bias bool) (Kind, Attr) {
	if weight.DType.Block() {
		return QuantizedMatmul, Attr{Bias: bias}
	}
	return MatMul, Attr{TransB: true, Bias: bias}
}

func inferLine(in ...Type) ([]Type, error) {
	kind, a := line(in[1], len(in) > 2)
	return kind.facts().Infer(a, in)
}

func inferQuantizedPlus(a Attr, in []Type) ([]Type, error) {
	out, err := inferQuantizedMatmul(Attr{}, in[:2])
	if err == nil && !in[2].Equal(out[0]) {
		err = fmt.Errorf("%v is added to %v, want the same type", in[2], out[0])
	}
	return out, err
}

func referenceQuantizedPlus(c Call, in, out []Array, args Args) {
	referenceQuantizedMatmul(Call{Kind: QuantizedMatmul, In: c.In[:2], Out: c.Out}, in[:2], out, args)
	for i := range out[0].F {
		out[0].F[i] += in[2].F[i]
	}
}

// Fused says whether the op stands for several others.
func (k Kind) Fused() bool { return k.facts().Fused }

func inferNormHeads(a Attr, in []Type) ([]Type, error) {
	if err := arity(in, 11, a.Bias, a.Bias, a.Bias); err != nil {
		return nil, err
	}
	norm, err := inferRMSNorm(a, in)
	if err != nil {
		return nil, err
	}
	list := make([]Type, 3)
	for i := range list {
		operands := []Type{norm[0], in[2+i]}
		if a.Bias {
			operands = append(operands, in[11+i])
		}
		made, err := inferLine(operands...)
		if err != nil {
			return nil, err
		}
		list[i] = made[0]
	}
	if _, err := inferRope(Attr{Heads: a.Heads}, []Type{list[0], in[8], in[5]}); err != nil {
		return nil, err
	}
	return inferCachedAttention(a, []Type{list[0], list[1], list[2], in[6], in[7], in[8], in[9], in[10]})
}

func costNormHeads(c Call) Cost {
	rows, matrices := float64(c.In[0].Shape.Rows()), int64(0)
	for _, t := range c.In[2:5] {
		matrices += t.Shape.Elements()
	}
	stored := c.In[6].Bytes() / c.In[6].Shape[0] / c.In[6].Shape[2] * c.In[0].Shape.Rows()
	bytes := c.In[2].Bytes() + c.In[3].Bytes() + c.In[4].Bytes() + c.In[0].Bytes() + c.Out[2].Bytes() + 2*stored
	return Cost{Flops: 2 * rows * float64(matrices), Matrix: true, Bytes: bytes}
}

func inferAttendCache(a Attr, in []Type) ([]Type, error) {
	if err := check(float(in, 0), rank(in, 0, 3), rank(in, 1, 4)); err != nil {
		return nil, err
	}
	row := Type{in[0].DType, in[0].Shape.WithLast(in[1].Shape[1] * in[1].Shape[3])}
	out, err := inferCachedAttention(a, []Type{in[0], row, row, in[1], in[2], in[3], in[4], in[5]})
	if err != nil {
		return nil, err
	}
	return out[2:], nil
}

func costAttendCache(c Call) Cost {
	row := Type{c.In[0].DType, c.In[0].Shape.WithLast(c.In[1].Shape[1] * c.In[1].Shape[3])}
	return costCachedAttention(Call{Attr: c.Attr, In: []Type{c.In[0], row, row, c.In[1], c.In[2], c.In[3], c.In[4], c.In[5]}})
}

func inferNormGated(a Attr, in []Type) ([]Type, error) {
	norm, err := inferRMSNorm(a, in)
	if err != nil {
		return nil, err
	}
	if err := same(in, 2, 3); err != nil {
		return nil, err
	}
	made, err := inferLine(norm[0], in[2])
	if err != nil {
		return nil, err
	}
	if a.Func == 0 || a.Func >= funcs {
		return nil, fmt.Errorf("has no function %v", a.Func)
	}
	return made, nil
}

func costNormGated(c Call) Cost {
	return Cost{Flops: 4 * float64(c.In[0].Shape.Rows()) * float64(c.In[2].Shape.Elements()), Matrix: true}
}

// apply makes a call's outputs by its reference, rounded to their types as between two ops.
func apply(kind Kind, a Attr, in ...Array) []Array {
	types := make([]Type, len(in))
	for i := range in {
		types[i] = in[i].Type
	}
	c, err := Make(kind, a, types...)
	if err != nil {
		panic(err) // the rule of the fused op has checked its parts
	}
	out := make([]Array, len(c.Out))
	for i, t := range c.Out {
		out[i] = NewArray(t)
	}
	c.Kind.facts().Reference(c, in, out, Args{})
	for _, o := range out {
		o.Round()
	}
	return out
}

func referenceNormHeads(c Call, in, out []Array, _ Args) {
	x := apply(RMSNorm, Attr{Eps: c.Attr.Eps}, in[0], in[1])[0]
	var made [3]Array
	for i := range made {
		operands := []Array{x, in[2+i]}
		if c.Attr.Bias {
			operands = append(operands, in[11+i])
		}
		kind, a := line(in[2+i].Type, c.Attr.Bias)
		made[i] = apply(kind, a, operands...)[0]
	}
	q := apply(Rope, Attr{Heads: c.Attr.Heads, Scale: c.Attr.Scale}, made[0], in[8], in[5])[0]
	k := apply(Rope, Attr{Heads: c.Attr.KVHeads, Scale: c.Attr.Scale}, made[1], in[8], in[5])[0]
	stored := apply(CachedAttention, c.Attr, q, k, made[2], in[6], in[7], in[8], in[9], in[10])
	copy(out[0].F, stored[0].F)
	copy(out[1].F, stored[1].F)
	copy(out[2].F, q.F)
}

// referenceAttendCache stores what is at the places of the rows there once more.
func referenceAttendCache(c Call, in, out []Array, _ Args) {
	row := Type{c.In[0].DType, c.In[0].Shape.WithLast(c.In[1].Shape[1] * c.In[1].Shape[3])}
	call := Call{Kind: CachedAttention, Attr: c.Attr, In: []Type{c.In[0], row, row, c.In[1], c.In[2], c.In[3], c.In[4], c.In[5]}}
	k, v := NewArray(row), NewArray(row)
	held := newCache(call, []Array{in[0], k, v, in[1], in[2], in[3], in[4], in[5]}, in[1], in[2])
	clear(out[0].F)
	held.attendRows(in[0].F, out[0].F)
}

func referenceNormGated(c Call, in, out []Array, _ Args) {
	x := apply(RMSNorm, Attr{Eps: c.Attr.Eps}, in[0], in[1])[0]
	kind, a := line(in[2].Type, false)
	gate, up := apply(kind, a, x, in[2])[0], apply(kind, a, x, in[3])[0]
	copy(out[0].F, apply(Gated, Attr{Func: c.Attr.Func}, gate, up)[0].F)
}

// fusedCase is a step over a cache of the list's type.
type fusedCase struct {
	name               string
	attr               Attr
	width, d, half     int
	page, table, count int // of the cache
	rows               [][2]int32
}

func (l *CaseList) fusedCases() []fusedCase {
	grouped := Attr{Heads: 4, KVHeads: 2, Eps: 1e-5}
	return []fusedCase{
		{"1 row", grouped, 64, 16, 8, 4, 3, 6, [][2]int32{{1, 9}}},
		{"part of heads turns", with(grouped, func(a *Attr) { a.Scale = 1.25 }), 128, 32, 8, 4, 3, 9, [][2]int32{{0, 5}, {2, 1}, {1, 11}}},
		{"bias, idle rows", with(grouped, func(a *Attr) { a.Bias = true }), 200, 64, 32, 8, 2, 8, [][2]int32{{3, 9}, {-1, 0}, {0, 0}, {9, 2}}},
		{"9 rows", grouped, 576, 64, 32, 8, 2, 20, [][2]int32{{0, 9}, {1, 1}, {2, 2}, {3, 3}, {4, 15}, {5, 5}, {6, 8}, {7, 7}, {8, 8}}},
		{"12 rows, idle ones", with(grouped, func(a *Attr) { a.Scale = 1.1 }), 256, 128, 64, 8, 2, 24, [][2]int32{{0, 9}, {1, 1}, {2, 2}, {-1, 0}, {4, 15}, {5, 5}, {6, 8}, {7, 7}, {8, 8}, {9, 0}, {12, 3}, {11, 14}}},
		{"1 head", Attr{Heads: 1, KVHeads: 1, Eps: 1e-6}, 32, 16, 8, 4, 2, 2, [][2]int32{{0, 7}}},
	}
}

func (c fusedCase) column(k int) Operand {
	return Integers(func(i int, _ float64) int32 { return c.rows[i][k] }, 1, len(c.rows))
}

// streams is how many sequences the table has.
func (c fusedCase) streams() int { return max(1, c.count/c.table) }

func (c fusedCase) pages() Operand {
	return Integers(func(i int, _ float64) int32 { return int32((i*7 + 3) % c.count) }, c.streams(), c.table)
}

func (l *CaseList) normHeads() {
	for _, c := range l.fusedCases() {
		h, kv := int(c.attr.Heads)*c.d, int(c.attr.KVHeads)*c.d
		held := l.Sized(2, c.count, int(c.attr.KVHeads), c.page, c.d)
		in := []Operand{l.X(1, len(c.rows), c.width), l.Sized(0.2, c.width), l.X(h, c.width), l.X(kv, c.width), l.X(kv, c.width), frequencies(c.half),
			held, held, c.column(1), c.column(0), c.pages()}
		if c.attr.Bias {
			in = append(in, l.X(h), l.X(kv), l.X(kv))
		}
		l.Add(c.name, NormHeads, c.attr, in...)
	}
	for _, w := range packedPairs {
		c := fusedCase{attr: Attr{Heads: 4, KVHeads: 2, Eps: 1e-5}, page: 4, table: 3, count: 6, rows: [][2]int32{{1, 9}, {0, 2}}}
		held := l.Sized(2, c.count, 2, c.page, 64)
		l.Add(fmt.Sprint("weights of ", w), NormHeads, c.attr, l.X(1, len(c.rows), 512), l.Sized(0.2, 512), SpreadAs(w[0], 256, 512), sizedAs(0.3, w[0], 128, 512), sizedAs(3, w[1], 128, 512),
			frequencies(32), held, held, c.column(1), c.column(0), c.pages()).Large = true
	}
}

// packedPairs are formats of a layer's weights: of most, and of those that are stored finer.
var packedPairs = [][2]dtype.Type{{quant.Q4_K, quant.Q6_K}, {quant.Q4_K, quant.Q4_K}, {quant.NF4, quant.NF4}, {quant.RowF8, quant.RowF8}}

// quantizedPlus has rows of one unit of kernels, of some, and of an odd number of them.
func (l *CaseList) quantizedPlus() {
	for _, codec := range quant.Weights() {
		l.Add(fmt.Sprint("1 row ", codec.Type), QuantizedPlus, Attr{}, l.X(1, 256), SpreadAs(codec.Type, 33, 256), l.X(1, 33))
		l.Add(fmt.Sprint("2 rows ", codec.Type), QuantizedPlus, Attr{}, l.X(1, 2, 2304), SpreadAs(codec.Type, 20, 2304), l.X(1, 2, 20)).Large = true
		l.Add(fmt.Sprint("8 rows ", codec.Type), QuantizedPlus, Attr{}, l.X(8, 768), SpreadAs(codec.Type, 100, 768), l.X(8, 100)).Large = true
	}
}

func (l *CaseList) attendCache() {
	for _, c := range l.fusedCases() {
		c.attr.Scale = 0.3
		held := l.Sized(2, c.count, int(c.attr.KVHeads), c.page, c.d)
		l.Add(c.name, AttendCache, c.attr, l.Sized(2, 1, len(c.rows), int(c.attr.Heads)*c.d), held, held, c.column(1), c.column(0), c.pages())
	}
	held := func(dims ...int) Operand { return l.Sized(2, dims...) }
	long := func(name string, a Attr, d, page, table int, rows ...[2]int32) {
		c := fusedCase{rows: rows, count: len(rows) * table, table: table}
		held := held(c.count, int(a.KVHeads), page, d)
		l.Add(name, AttendCache, a, l.Sized(1, 1, len(rows), int(a.Heads)*d), held, held, c.column(1), c.column(0), c.pages()).Large = true
	}
	long("long", Attr{Heads: 8, KVHeads: 2, Scale: 0.09}, 128, 64, 30, [2]int32{0, 1900}, [2]int32{1, 127}, [2]int32{2, 640})
	long("long windows", Attr{Heads: 2, KVHeads: 2, Scale: 0.1, Window: 700}, 64, 64, 13, [2]int32{0, 5000}, [2]int32{1, 699})
	long("20 heads of one", Attr{Heads: 20, KVHeads: 1, Scale: 0.2}, 64, 16, 20, [2]int32{0, 300}, [2]int32{1, 15})
	long("heads of 96", Attr{Heads: 3, KVHeads: 1, Scale: 0.1}, 96, 64, 5, [2]int32{0, 290}, [2]int32{1, 64})
	long("heads of 256", Attr{Heads: 4, KVHeads: 2, Scale: 0.06}, 256, 16, 9, [2]int32{0, 130}, [2]int32{1, 15})
	for _, codes := range []dtype.Type{quant.RowI8, quant.RowF8, quant.RowI4} {
		held = func(dims ...int) Operand { return sizedAs(2, codes, dims...) }
		long(fmt.Sprint("long ", codes), Attr{Heads: 6, KVHeads: 2, Scale: 0.09}, 128, 64, 20, [2]int32{0, 1250}, [2]int32{-1, 0})
		long(fmt.Sprint("windows ", codes), Attr{Heads: 2, KVHeads: 2, Scale: 0.1, Window: 300}, 64, 32, 12, [2]int32{0, 900}, [2]int32{1, 299}, [2]int32{2, 31})
		long(fmt.Sprint("pages of 24 ", codes), Attr{Heads: 9, KVHeads: 1, Scale: 0.1}, 64, 24, 9, [2]int32{0, 200}, [2]int32{0, 199}, [2]int32{1, 30})
	}
}

func (l *CaseList) normGated() {
	for _, c := range []struct {
		name           string
		f              Func
		rows, width, n int
	}{{"1 row", SiLU, 1, 64, 40}, {"3 rows", GELUTanh, 3, 200, 17}, {"8 rows", SiLU, 8, 1024, 64}, {"11 rows", GELU, 11, 72, 24}} {
		l.Add(c.name, NormGated, Attr{Func: c.f, Eps: 1e-5}, l.X(1, c.rows, c.width), l.Sized(0.5, c.width), l.Sized(0.3, c.n, c.width), l.Sized(0.3, c.n, c.width))
	}
	for _, w := range packedPairs {
		l.Add(fmt.Sprint("weights of ", w[1]), NormGated, Attr{Func: SiLU, Eps: 1e-5}, l.X(1, 4, 768), l.Sized(0.5, 768), SpreadAs(w[1], 44, 768), sizedAs(0.2, w[1], 44, 768)).Large = true
	}
}
