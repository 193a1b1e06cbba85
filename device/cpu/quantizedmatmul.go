package cpu

import (
	"spillway/device"
	"spillway/device/cpu/kernel"
	"spillway/op"
	"spillway/quant"
)

func init() {
	RegisterNative(op.QuantizedMatmul, quantizedMatmul, func(c op.Call) bool { return isPairs(c) || isPacked(c) || !hasNarrow(c.In) && !hasNarrow(c.Out) })
}

// quantizedMatmul decodes some outputs' weights at a time, while they stay in the cache, and
// multiplies by them. Bits are those of decoding everything first.
func quantizedMatmul(c op.Call, workers int) Program {
	if c.Attr.OutlierThreshold > 0 {
		return outlierMatmul(c, workers)
	}
	if isPacked(c) {
		return packedMatmul(c, workers)
	}
	if isPairs(c) {
		return pairMatMul(c, workers)
	}
	if narrow(quant.InterleavedOf(c.In[1].DType)) {
		return interleavedMatmul(c, workers)
	}
	if m, k := c.In[0].Shape.Rows(), c.In[1].Shape[1]; c.Attr.AnyOrder && m <= kernel.PackedDotsM && kernel.HasPackedDots(c.In[1].DType, int(k)) {
		return packedDots(c, workers)
	}
	t := newTiles(c, workers)
	return Program{Workspace: t.workspace(), Run: func(p *kernel.Pool, l *device.Launch) {
		t.bind(c, l)
		t.run(p, func() {
			if c.Attr.Bias {
				t.gemm.Bias = F32(l, 2)[t.first:]
			}
			t.gemm.Run(p)
		})
	}}
}

// packedDots multiplies few rows by a weight as it is stored, with sums in any order.
func packedDots(c op.Call, workers int) Program {
	g := &kernel.PackedDots{M: int(c.In[0].Shape.Rows()), N: int(c.In[1].Shape[0]), K: int(c.In[1].Shape[1]), Type: c.In[1].DType}
	return Program{Workspace: bytesOf(g.Workspace(workers)), Run: func(p *kernel.Pool, l *device.Launch) {
		g.X, g.C, g.Work, g.Raw = F32(l, 0), F32(l, len(c.In)), scratch(l), l.Buffers[1].Host()
		if c.Attr.Bias {
			g.Bias = F32(l, 2)
		}
		g.Run(p)
	}}
}

// interleavedMatmul multiplies by a 16-bit weight with rows interleaved. Its bits are those of the
// matmul with the weight as it is.
func interleavedMatmul(c op.Call, workers int) Program {
	m, k, n := int(c.In[0].Shape.Rows()), int(c.In[1].Shape[1]), int(c.In[1].Shape[0])
	g := &kernel.Gemm{M: m, N: n, K: k, CStep: n, A: kernel.Matrix{Step: k}, B: interleavedWeight(c.In[1])}
	return Program{Workspace: bytesOf(g.Workspace(workers)), Run: func(p *kernel.Pool, l *device.Launch) {
		g.A.Data, g.C, g.Work = F32(l, 0), F32(l, len(c.In)), scratch(l)
		bindWeight(&g.B, n*k, l.Buffers[1])
		if c.Attr.Bias {
			g.Bias = F32(l, 2)
		}
		g.Run(p)
	}}
}

// interleavedWeight is a 16-bit weight with rows interleaved, as a right operand without its memory.
func interleavedWeight(t op.Type) kernel.Matrix {
	m := kernel.Matrix{Step: int(t.Shape[1]), Transposed: true, Type: quant.InterleavedOf(t.DType), Interleaved: true}
	if t.DType == quant.CompressedBF16 {
		m.Compressed = new(quant.Compressed)
	}
	return m
}

// bindWeight says where a 16-bit weight is, as it is stored, interleaved or compressed.
func bindWeight(m *kernel.Matrix, elements int, at device.Buffer) {
	if m.Compressed != nil {
		*m.Compressed = quant.ViewCompressed(elements, at.Host())
		return
	}
	m.Codes = view[uint16](at)
}

// tiles walks over the outputs of a quantized matmul.
type tiles struct {
	weight  *quantizedWeight
	gemm    kernel.Gemm
	outputs int // in all
	most    int // outputs decoded at a time
	workers int

	decoded []float32 // a tile: outputs by K
	out     []float32
	scratch []decodeScratch
	job     rows
	first   int // output of the tile
	// into writes the weights of an output, decoded by default.
	into func(worker int, dst []float32, output int)
}

// fewRows is up to how many rows a matmul is bound by reading its weight.
const fewRows = 48

// Outputs decoded at a time: with few rows so many that their weights stay in the caches
// of the cores, with many enough that packing the rows again for each tile is little.
const (
	fewTile  = 1 << 19 // elements
	manyTile = 1024    // outputs
)

func newTiles(c op.Call, workers int) *tiles {
	m, k, n := c.In[0].Shape.Rows(), c.In[1].Shape[1], c.In[1].Shape[0]
	t := &tiles{weight: newQuantizedWeight(c.In[1]), outputs: int(n), most: min(int(n), manyTile), workers: workers, scratch: make([]decodeScratch, workers)}
	if m <= fewRows {
		t.most = min(int(n), max(32, fewTile/int(max(k, 1))/32*32))
	}
	t.gemm = kernel.Gemm{M: int(m), K: int(k), CStep: int(n), A: kernel.Matrix{Step: int(k)}, B: kernel.Matrix{Step: int(k), Transposed: true}}
	t.job.step = max(1, decodedPiece/int(max(k, 1)))
	t.job.do = func(worker, from, to int) {
		for j := from; j < to; j++ {
			t.into(worker, t.decoded[j*t.gemm.K:(j+1)*t.gemm.K], t.first+j)
		}
	}
	t.into = func(worker int, dst []float32, output int) { t.weight.decode(&t.scratch[worker], dst, output*t.gemm.K) }
	return t
}

// workspace in bytes: a tile, and what the matmul of one needs, a whole one or the last.
func (t *tiles) workspace() int64 {
	whole, last := t.gemm, t.gemm
	whole.N, last.N = t.most, t.outputs%max(t.most, 1)
	return bytesOf(t.most*t.gemm.K + max(whole.Workspace(t.workers), last.Workspace(t.workers)))
}

func (t *tiles) bind(c op.Call, l *device.Launch) {
	t.weight.bind(l.Buffers[1].Host())
	work := scratch(l)
	t.decoded, t.gemm.Work = work[:t.most*t.gemm.K], work[t.most*t.gemm.K:]
	t.gemm.A.Data, t.out = F32(l, 0), F32(l, len(c.In))
}

// run decodes tile by tile and has multiply run the gemm of each, of N outputs from first on.
func (t *tiles) run(p *kernel.Pool, multiply func()) {
	for t.first = 0; t.first < t.outputs; t.first += t.most {
		t.job.n = min(t.most, t.outputs-t.first)
		t.job.start(p)
		t.gemm.N, t.gemm.B.Data, t.gemm.C = t.job.n, t.decoded, t.out[t.first:]
		multiply()
	}
}
