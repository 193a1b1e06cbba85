package kernel

import (
	"math"
	"unsafe"

	"spillway/dtype"
	"spillway/quant"
)

// table is how codes of a 4-bit type of bitsandbytes are multiplied as integers: each of the
// sixteen values times size, rounded. The size is the one up to tableMost that brings all values
// nearest to integers. Values of fp4 become exact, those of nf4 are off by less than 2⁻¹³ of the
// absmax of a block, as much as bf16 is off by for the smallest of them.
type table struct {
	values [16]int16
	size   float32
	bytes  [32]byte // the lower bytes of the values, then the upper ones
}

// Integers of a table and of the inputs that are multiplied by it are so small that a sum over 32
// elements fits into 31 bits: one bit less for inputs than elsewhere.
const (
	tableMost = 4095
	tableBits = inputBits - 2
)

func newTable(t dtype.Type) *table {
	values, least := quant.FourBitOf(t).Values, math.Inf(1)
	f := &table{}
	for size := float64(tableMost); size > tableMost/2; size-- {
		var off float64
		for _, v := range values {
			scaled := float64(v) * size
			off = max(off, math.Abs(scaled-math.Round(scaled))/size)
		}
		if off < least-1e-9 {
			least, f.size = off, float32(size)
		}
	}
	for i, v := range values {
		f.values[i] = int16(math.Round(float64(v) * float64(f.size)))
		f.bytes[i], f.bytes[16+i] = byte(f.values[i]), byte(f.values[i]>>8)
	}
	return f
}

var tables = map[dtype.Type]*table{quant.NF4x8: newTable(quant.NF4), quant.FP4x8: newTable(quant.FP4)}

// tableRoutines is one implementation of the inner loops.
type tableRoutines struct {
	// matvec multiplies one row by eight outputs of so many blocks.
	matvec func(w *byte, x *int16, records *record, dst, scales *float32, table *[32]byte, blocks int)
	// unpack writes codes as pairs of 16-bit integers, 64 bytes from pair to pair.
	unpack func(w *byte, pairs *int16, table *[32]byte, blocks int)
	// absmax decodes eight times n scales: dst[i] = (values[codes[i]]·groups[i mod 8] + offset)·factor.
	absmax func(dst *float32, codes *byte, n int, values *[256]float32, groups *[8]float32, offset, factor float32)
}

// absmax decodes the scales of n blocks of eight rows, from block b on: [n 8], divided by the size
// of the table.
func (g *Packed) absmax(dst []float32, group, b, n int) {
	f, blocks := g.Format.table, g.K/quant.FourBitBlock
	_, scales := quant.View4(g.N*g.K, g.W)
	codes := scales.Codes[group*quant.InterleavedRows*blocks:]
	for end := b + n; b < end; {
		// All rows have the scale of one group of blocks for a while.
		var of [8]float32
		same := end - b
		for r := range of {
			at := (group*quant.InterleavedRows+r)*blocks + b
			of[r] = scales.Group(at / quant.FourBitGroup)
			same = min(same, quant.FourBitGroup-at%quant.FourBitGroup)
		}
		g.path.table.absmax(&dst[0], &codes[b*8], same, &quant.Signed.Values, &of, scales.Offset, 1/f.size)
		b, dst = b+same, dst[min(8*same, len(dst)):]
	}
}

// tableRow computes groups of outputs of row i.
func (g *Packed) tableRow(worker, i, first, groups int) {
	blocks := g.K / quant.FourBitBlock
	scales := g.absmaxScratch(worker)
	for q := first; q < first+groups; q++ {
		g.absmax(scales, q, 0, blocks)
		g.path.table.matvec(&g.W[q*g.groupBytes()], &g.rounded[i*g.inputStep()], &g.records[i*g.recordStep()],
			&g.C[i*g.N+q*quant.InterleavedRows], &scales[0], &g.Format.table.bytes, blocks)
	}
}

// unpackTable unpacks blocks of a half of a panel, from block b of a group of rows on.
func (g *Packed) unpackTable(worker, group, b, n int, pairs *int16, scales []float32) {
	g.path.table.unpack(&g.W[group*g.groupBytes()+b*quant.FourBitBlock/2*quant.InterleavedRows], pairs, &g.Format.table.bytes, n)
	own := g.absmaxScratch(worker)
	g.absmax(own, group, b, n)
	for j := range 2 * n { // two sums of 32 share a scale
		copy(scales[panelN*j:], own[j/2*8:][:8])
	}
}

// absmaxScratch is at the end of a worker's scratch memory.
func (g *Packed) absmaxScratch(worker int) []float32 {
	scratch := g.scratchOf(worker)
	return scratch[len(scratch)-g.K/8:]
}

func portableTable() tableRoutines {
	return tableRoutines{matvec: matvecTableGo, unpack: unpackTableGo, absmax: absmaxGo}
}

func matvecTableGo(w *byte, x *int16, records *record, dst, scales *float32, table *[32]byte, blocks int) {
	n := blocks * quant.FourBitBlock
	pairs, each := make([]int16, n*panelN), make([]float32, panelN*n/inputBlock)
	unpackTableGo(w, &pairs[0], table, blocks)
	for j := range n / inputBlock {
		copy(each[panelN*j:], unsafe.Slice(at(scales, j/2*8), 8))
	}
	var c [panelN]float32
	packedTileGo(x, 0, records, 0, &pairs[0], &each[0], nil, &c[0], 0, n/inputBlock, inputBlock/2)
	copy(unsafe.Slice(dst, 8), c[:8])
}

func unpackTableGo(w *byte, pairs *int16, table *[32]byte, blocks int) {
	codes := unsafe.Slice(w, blocks*quant.FourBitBlock/2*quant.InterleavedRows)
	for p := range blocks * quant.FourBitBlock {
		for r := range quant.InterleavedRows {
			i := p % 8
			code := codes[p/8*32+r/4*16+r%4*2+i%2+i/2%2*8] >> (i / 4 * 4) & 15
			value := int16(uint16(table[code]) | uint16(table[16+code])<<8)
			*(*int16)(unsafe.Add(unsafe.Pointer(pairs), 64*(p/2)+4*r+2*(p%2))) = value
		}
	}
}

func absmaxGo(dst *float32, codes *byte, n int, values *[256]float32, groups *[8]float32, offset, factor float32) {
	for i, c := range unsafe.Slice(codes, 8*n) {
		rest := float32(values[c] * groups[i%8]) // rounded, not fused
		*at(dst, i) = float32(rest+offset) * factor
	}
}
