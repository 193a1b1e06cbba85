package rig

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"spillway/device"
	"spillway/dtype"
	"spillway/machine"
	"spillway/op"
	"spillway/optim"
	"spillway/shape"
)

// grid says at which sizes calls are measured for the tables. Empty lists measure nothing.
type grid struct {
	Sides []int64 // of matmuls, for each of m, n and k
	// Thin are further rows of matmuls, fewer than Sides: those of steps that add a token to some
	// texts, whose kernels are others.
	Thin []int64
	// Of attention: positions, heads of all sequences together, and the width of a head.
	Positions, Heads, Head []int64
	// Of losses fused with the lm_head: rows, vocabulary, width.
	Rows, Vocabulary, Width []int64
	// Lines are the rows of everything else, Line their width.
	Lines []int64
	Line  int64
	// Rest is the most time between rows of matmuls, in which a GPU raises its clock again.
	Rest time.Duration
}

// gpuGrid reaches from calls shorter than a launch to calls that fill any GPU, and takes
// some seconds.
var gpuGrid = grid{
	Sides:     []int64{256, 1024, 2048, 4096, 8192},
	Positions: []int64{512, 4096}, Heads: []int64{16, 128}, Head: []int64{64, 128},
	Rows: []int64{512, 2048, 8192}, Vocabulary: []int64{8192, 131072}, Width: []int64{1024, 4096},
	Lines: []int64{64, 1024, 16384}, Line: 4096,
	Rest: clockRest,
}

// cpuGrid has sizes that fit the caches of a CPU and sizes that do not, and takes some
// seconds.
var cpuGrid = grid{
	Sides: []int64{64, 256, 1024}, Thin: []int64{1, 4, 16},
	Positions: []int64{128, 512}, Heads: []int64{4, 16}, Head: []int64{32, 128},
	Rows: []int64{64, 256}, Vocabulary: []int64{vocabulary}, Width: []int64{128, 512},
	Lines: []int64{16, 128, 1024}, Line: 1024,
}

// tableSpan is how long the launches of one measurement take together.
const tableSpan = 2 * time.Millisecond

// shapeTables measures the calls of a grid that compute in t. Kinds without a kernel on the
// device are left out. Between calls it asks whether to stop.
func shapeTables(dev device.Device, t dtype.Type, g grid, stop func() error) (tables machine.ByVariant, err error) {
	b, err := newBench(dev)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	b.rest, b.stop = g.Rest, stop
	tables = machine.ByVariant{}
	for v, make := range shaped {
		if v.Dropout && t == dtype.F32 {
			continue // the same kernels compute attention without it, and take as long
		}
		if err := b.measure(tables, v, g.axes(v.Kind), func(s []int64) (op.Call, error) { return make(t, s[0], s[1], s[2]) }); err != nil {
			return tables, err
		}
	}
	for kind, make := range plain {
		if err := b.measureLines(tables, op.Variant{Kind: kind}, t, g, make); err != nil {
			return tables, err
		}
	}
	return tables, nil
}

// axes are the sizes of a kind that has three.
func (g grid) axes(kind op.Kind) [][]int64 {
	switch kind {
	case op.MatMul:
		return [][]int64{slices.Concat(g.Thin, g.Sides), g.Sides, g.Sides}
	case op.Attention, op.AttentionGrad:
		return [][]int64{g.Positions, g.Heads, g.Head}
	}
	return [][]int64{g.Rows, g.Vocabulary, g.Width}
}

// measure fills the table of a variant with three axes.
func (b *bench) measure(tables machine.ByVariant, v op.Variant, axes [][]int64, make func([]int64) (op.Call, error)) error {
	t := machine.Table{Axes: axes}
	for _, x := range axes[0] {
		for _, y := range axes[1] {
			for _, z := range axes[2] {
				rate, err := b.rate(make([]int64{x, y, z}))
				if err != nil || rate == 0 {
					return err
				}
				t.Rates = append(t.Rates, rate)
			}
		}
	}
	if len(t.Rates) > 0 {
		tables[v] = t
	}
	return nil
}

// measureLines fills the table of a variant whose only axis is its bytes.
func (b *bench) measureLines(tables machine.ByVariant, v op.Variant, d dtype.Type, g grid, make maker) error {
	t := machine.Table{Axes: [][]int64{nil}}
	for _, rows := range g.Lines {
		call, err := make(d, rows, g.Line)
		rate, err := b.rate(call, err)
		if err != nil || rate == 0 {
			return err
		}
		t.Axes[0] = append(t.Axes[0], call.Sizes()[0])
		t.Rates = append(t.Rates, rate)
	}
	if len(t.Rates) > 0 {
		tables[v] = t
	}
	return nil
}

// rate is the rate of a call, 0 where the device has no kernel for it.
func (b *bench) rate(call op.Call, err error) (float64, error) {
	if err == nil && b.stop != nil {
		err = b.stop()
	}
	if err != nil {
		return 0, err
	}
	took, err := b.time(call, tableSpan)
	var none *device.NoKernelError
	if errors.As(err, &none) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("measuring %v: %w", call.Kind, err)
	}
	return call.Cost().Amount() / took.Seconds(), nil
}

// shaped makes calls of the variants with three sizes, in the order of op.Call.Sizes.
var shaped = map[op.Variant]func(t dtype.Type, x, y, z int64) (op.Call, error){
	{Kind: op.MatMul}: func(t dtype.Type, m, n, k int64) (op.Call, error) {
		return op.Make(op.MatMul, op.Attr{TransB: true}, of(t, m, k), of(t, n, k))
	},
	{Kind: op.Attention}:                    attention(op.Attention, 0),
	{Kind: op.Attention, Dropout: true}:     attention(op.Attention, typicalDropout),
	{Kind: op.AttentionGrad}:                attention(op.AttentionGrad, 0),
	{Kind: op.AttentionGrad, Dropout: true}: attention(op.AttentionGrad, typicalDropout),
	{Kind: op.LinearCrossEntropy}: func(t dtype.Type, rows, vocabulary, width int64) (op.Call, error) {
		return op.Make(op.LinearCrossEntropy, op.Attr{}, of(t, rows, width), of(t, vocabulary, width), of(dtype.I32, rows), of(dtype.F32, 1))
	},
	{Kind: op.LinearCrossEntropyGrad}: func(t dtype.Type, rows, vocabulary, width int64) (op.Call, error) {
		return op.Make(op.LinearCrossEntropyGrad, op.Attr{}, of(t, rows, width), of(t, vocabulary, width), of(dtype.I32, rows), of(dtype.F32, 1), of(dtype.F32, 1))
	},
}

// typicalDropout is the share that is dropped where something is; kernels take the same
// time for any share.
const typicalDropout = 0.1

// attention makes causal attention, or its gradient.
func attention(kind op.Kind, dropout float64) func(t dtype.Type, positions, heads, head int64) (op.Call, error) {
	return func(t dtype.Type, positions, heads, head int64) (op.Call, error) {
		q := of(t, 1, positions, heads*head)
		in := []op.Type{q, q, q}
		if kind == op.AttentionGrad {
			in = append(in, q, of(dtype.F32, 1, heads, positions), q)
		}
		return op.Make(kind, op.Attr{Heads: heads, KVHeads: heads, Causal: true, Scale: 1 / math.Sqrt(float64(head)), Prob: dropout}, in...)
	}
}

// maker makes a call on a matrix of rows by width.
type maker func(t dtype.Type, rows, width int64) (op.Call, error)

// alike makes calls whose operands all have the same shape.
func alike(kind op.Kind, a op.Attr, operands int) maker {
	return func(t dtype.Type, rows, width int64) (op.Call, error) {
		in := make([]op.Type, operands)
		for i := range in {
			in[i] = of(t, rows, width)
		}
		return op.Make(kind, a, in...)
	}
}

// plain makes calls of the other kinds that models spend time in.
var plain = map[op.Kind]maker{
	op.Copy:      alike(op.Copy, op.Attr{}, 1),
	op.Add:       alike(op.Add, op.Attr{}, 2),
	op.Unary:     alike(op.Unary, op.Attr{Func: op.GELU}, 1),
	op.UnaryGrad: alike(op.UnaryGrad, op.Attr{Func: op.GELU}, 2),
	op.Gated:     alike(op.Gated, op.Attr{Func: op.SiLU}, 2),
	op.GatedGrad: alike(op.GatedGrad, op.Attr{Func: op.SiLU}, 3),
	op.Dropout:   alike(op.Dropout, op.Attr{Prob: typicalDropout}, 1),
	op.SumRows:   alike(op.SumRows, op.Attr{InnerDims: 1}, 1),

	op.RMSNorm: func(t dtype.Type, rows, width int64) (op.Call, error) {
		return op.Make(op.RMSNorm, op.Attr{Eps: 1e-5}, of(t, rows, width), of(t, width))
	},
	op.RMSNormGrad: func(t dtype.Type, rows, width int64) (op.Call, error) {
		return op.Make(op.RMSNormGrad, op.Attr{Eps: 1e-5}, of(t, rows, width), of(t, width), of(t, rows, width))
	},
	op.LayerNorm: func(t dtype.Type, rows, width int64) (op.Call, error) {
		return op.Make(op.LayerNorm, op.Attr{Eps: 1e-5, Bias: true}, of(t, rows, width), of(t, width), of(t, width))
	},
	op.LayerNormGrad: func(t dtype.Type, rows, width int64) (op.Call, error) {
		return op.Make(op.LayerNormGrad, op.Attr{Eps: 1e-5, Bias: true}, of(t, rows, width), of(t, width), of(t, rows, width))
	},
	op.Rope: func(t dtype.Type, rows, width int64) (op.Call, error) {
		return op.Make(op.Rope, op.Attr{Heads: width / 128}, of(t, rows, width), of(dtype.I32, rows), of(dtype.F32, 64))
	},
	op.Embedding: func(t dtype.Type, rows, width int64) (op.Call, error) {
		return op.Make(op.Embedding, op.Attr{}, of(dtype.I32, rows), of(t, vocabulary, width))
	},
	op.EmbeddingGrad: func(t dtype.Type, rows, width int64) (op.Call, error) {
		return op.Make(op.EmbeddingGrad, op.Attr{Rows: vocabulary, Accumulate: true}, of(dtype.I32, rows), of(t, rows, width))
	},
	op.SumSquares: alike(op.SumSquares, op.Attr{}, 1),
	optim.Adam: func(t dtype.Type, rows, width int64) (op.Call, error) {
		full, a := of(dtype.F32, rows*width), op.Attr{}
		if t != dtype.F32 {
			a.To = t
		}
		return op.Make(optim.Adam, a, full, of(t, rows*width), full, full, of(dtype.F32, 2))
	},
}

func of(t dtype.Type, dims ...int64) op.Type { return op.Type{DType: t, Shape: shape.Shape(dims)} }
