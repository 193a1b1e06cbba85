package kernel

import (
	"spillway/dtype"
	"spillway/quant"
)

// PackedDots is the matmul of few rows with a quantized weight as it is stored, a row of it after the other,
// where sums may be in any order: codes go from memory to registers, and are multiplied as numbers. It is for a
// CPU next to a GPU, whose kernels read the same bytes. A row has the same bits whatever M.
type PackedDots struct {
	M, N, K int
	Type    dtype.Type
	X, C    []float32 // [M K], [M N]
	Bias    []float32 // N, or nil
	Raw     []byte    // the weight's storage
	Work    []float32 // Workspace elements
	codes   []byte    // of four bits
	scales  quant.Scales
	team    int
}

// PackedDotsM is up to how many rows are computed this way.
const PackedDotsM = 4

// one127th is what the codes of LLM.int8 are multiples of.
const one127th = 7.874015718698502e-3

// HasPackedDots says whether weights of a type and of so many columns are multiplied this way here.
func HasPackedDots(t dtype.Type, k int) bool {
	if !active.dots {
		return false
	}
	switch t {
	case quant.Q4_K, quant.Q6_K:
		return k%256 == 0
	case quant.RowI8:
		return k%64 == 0
	}
	return quant.FourBitOf(t) != nil && k%quant.FourBitBlock == 0
}

// Workspace is the scratch memory of so many workers, in elements: x as the kernels read it, sums of 32 of it,
// and scales of a row.
func (g *PackedDots) Workspace(workers int) int {
	return g.M*(g.K+g.K/32) + workers*(g.K/quant.FourBitBlock+1)
}

// Run computes the matmul on the pool.
func (g *PackedDots) Run(p *Pool) {
	g.team = p.Workers()
	if f := quant.FourBitOf(g.Type); f != nil {
		g.codes, g.scales = quant.View4(g.N*g.K, g.Raw)
	}
	for i := range g.M {
		g.prepare(g.X[i*g.K:][:g.K], g.x(i), g.sums(i))
	}
	p.LaunchWork(g.shares().pieces(), packedDots{g}, g.M*g.N*g.K)
}

func (g *PackedDots) shares() shares       { return shares{g.N, g.team} }
func (g *PackedDots) x(i int) []float32    { return g.Work[i*g.K:][:g.K] }
func (g *PackedDots) sums(i int) []float32 { return g.Work[g.M*g.K+i*g.K/32:][:g.K/32] }
func (g *PackedDots) scaled(w int) []float32 {
	return g.Work[g.M*(g.K+g.K/32)+w*(g.K/quant.FourBitBlock):][:g.K/quant.FourBitBlock]
}

// prepare lays a row of x out as the kernels read it.
func (g *PackedDots) prepare(x, to, sums []float32) {
	switch {
	case quant.FourBitOf(g.Type) != nil:
		splitPairs(to, x)
		return
	case g.Type == quant.Q4_K:
		for j := range sums {
			var sum float32
			for _, v := range x[32*j:][:32] {
				sum += v
			}
			sums[j] = sum
		}
	}
	copy(to, x)
}

// splitPairs puts the even elements of each sixteen before the odd ones.
func splitPairs(to, x []float32) {
	for i := 0; i < len(x); i += 16 {
		from, dst := x[i:][:16], to[i:][:16]
		for j := range 8 {
			dst[j], dst[8+j] = from[2*j], from[2*j+1]
		}
	}
}

// packedDots is the job.
type packedDots struct{ *PackedDots }

// Run computes some columns.
func (g packedDots) Run(worker, piece int) {
	first, n := g.shares().piece(piece)
	f := quant.FourBitOf(g.Type)
	scaled := g.scaled(worker)
	for col := first; col < first+n; col++ {
		if f != nil {
			g.scales.Absmax(scaled, col*g.K/quant.FourBitBlock, &quant.Signed.Values)
		}
		for i := range g.M {
			var sum float32
			switch {
			case f != nil:
				sum = dotFourBit(g.x(i), g.codes[col*g.K/2:], scaled, &f.Values)
			case g.Type == quant.Q4_K:
				sum = dotQ4K(g.x(i), g.sums(i), g.Raw[col*g.K/256*144:])
			case g.Type == quant.Q6_K:
				sum = dotQ6K(g.x(i), g.Raw[col*g.K/256*210:])
			default:
				sum = dotI8(g.x(i), g.Raw[col*g.K:]) * (quant.RowScale(g.Raw, g.N*g.K, col) * one127th)
			}
			if g.Bias != nil {
				sum += g.Bias[col]
			}
			g.C[i*g.N+col] = sum
		}
	}
}
