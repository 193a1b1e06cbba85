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

var tables = map[dtype.Type]*table{quant.NF4x16: newTable(quant.NF4), quant.FP4x16: newTable(quant.FP4)}

// tableRoutines is one implementation of the inner loops.
type tableRoutines struct {
	// matvec multiplies one row by so many blocks of sixteen outputs, which are added to. It makes their scales of what
	// was looked up, and meanwhile looks up the codes of the scales of sixteen other outputs, which come next.
	matvec func(w *byte, x *int16, records *record, dst *float32, table *[32]byte, blocks int, scales scaling, next lookup)
	// unpack writes codes as pairs of 16-bit integers, 64 bytes from pair to pair.
	unpack func(w *byte, pairs *int16, table *[32]byte, blocks int)
	// look looks the codes of the scales of so many blocks of sixteen outputs up.
	look func(l lookup, blocks int)
	// absmax makes scales of what was looked up, of so many blocks.
	absmax func(s scaling, blocks int)
}

// scaling is how sixteen scales of each block are made of what was looked up:
// (x[i]·groups[i mod 16] + offset)·factor.
type scaling struct {
	x, groups      *float32
	offset, factor float32
}

// lookup is dst[i] = values[codes[i]], for sixteen codes of each block.
type lookup struct {
	dst    *float32
	codes  *byte
	values *[256]float32
}

// tableScratch is what a worker needs, at the end of its scratch memory: scales of sixteen rows, what
// was looked up for the next sixteen, and the scales of their groups.
type tableScratch struct {
	each  [2][]float32 // [blocks 16]
	group *[panelN]float32
}

// tableScales is how many scales sixteen rows have.
func (g *Packed) tableScales() int { return g.K / quant.FourBitBlock * panelN }

func (g *Packed) tableScratchSize() int { return 2*g.tableScales() + panelN }

func (g *Packed) tableScratchOf(worker int) (s tableScratch) {
	scratch := g.scratchOf(worker)
	scratch = scratch[len(scratch)-g.tableScratchSize():]
	n := g.tableScales()
	s.each[0], s.each[1], s.group = scratch[:n], scratch[n:][:n], (*[panelN]float32)(scratch[2*n:])
	return s
}

// scaleCodes looks the scales of sixteen rows up, from block b on.
func (g *Packed) scaleCodes(dst []float32, scales *quant.Scales, group, b int) lookup {
	at := group*g.tableScales() + panelN*b
	return lookup{&dst[0], &scales.Codes[at], &quant.Signed.Values}
}

// sameGroups sets of to the scales of the groups that block b of sixteen rows is in, and returns for how
// many blocks, below end, each row stays in its group. It is called for every few blocks, so it divides
// numbers without a sign and checks no bounds.
func (g *Packed) sameGroups(of *[panelN]float32, scales *quant.Scales, group, b, end int) int {
	blocks := uint(g.K / quant.FourBitBlock)
	first, same := uint(group*panelN)*blocks+uint(b), uint(end-b)
	groups := (*float32)(unsafe.Pointer(&scales.Groups[0]))
	for r := range of {
		of[r] = *at(groups, int(first/quant.FourBitGroup))
		same = min(same, quant.FourBitGroup-first%quant.FourBitGroup)
		first += blocks
	}
	return int(same)
}

// scale makes scales of x, which was looked up, for blocks b to end of sixteen rows.
func (g *Packed) scale(x []float32, of *[panelN]float32, scales *quant.Scales, group, b, end int) {
	for first := b; b < end; {
		same := g.sameGroups(of, scales, group, b, end)
		g.path.table.absmax(g.scaling(x[panelN*(b-first):], of, scales), same)
		b += same
	}
}

func (g *Packed) scaling(x []float32, of *[panelN]float32, scales *quant.Scales) scaling {
	return scaling{&x[0], &of[0], scales.Offset, 1 / g.Format.table.size}
}

// tableRow computes groups of outputs of the only row.
func (g *Packed) tableRow(worker, first, groups int) {
	blocks, own := g.K/quant.FourBitBlock, g.tableScratchOf(worker)
	_, scales := quant.View4(g.N*g.K, g.W)
	g.path.table.look(g.scaleCodes(own.each[0], &scales, first, 0), blocks)
	clear(g.C[first*panelN:][:groups*panelN])
	for q := first; q < first+groups; q++ {
		now, then := own.each[(q-first)%2], own.each[(q-first+1)%2]
		next := min(q+1, first+groups-1)
		for b := 0; b < blocks; {
			same := g.sameGroups(own.group, &scales, q, b, blocks)
			g.path.table.matvec(&g.W[q*g.groupBytes()+b*quant.FourBitBlock/2*panelN], &g.rounded[b*quant.FourBitBlock], &g.records[2*b], &g.C[q*panelN],
				&g.Format.table.bytes, same, g.scaling(now[panelN*b:], own.group, &scales), g.scaleCodes(then[panelN*b:], &scales, next, b))
			b += same
		}
	}
}

// unpackTable unpacks blocks of a panel, from block b of a group of rows on.
func (g *Packed) unpackTable(worker, group, b, n int, pairs *int16, each []float32) {
	g.path.table.unpack(&g.W[group*g.groupBytes()+b*quant.FourBitBlock/2*panelN], pairs, &g.Format.table.bytes, n)
	own := g.tableScratchOf(worker)
	_, scales := quant.View4(g.N*g.K, g.W)
	g.path.table.look(g.scaleCodes(own.each[0], &scales, group, b), n)
	g.scale(own.each[0], own.group, &scales, group, b, b+n)
	spreadScales(each, own.each[0], n)
}

// spreadScales gives both sums of 32 elements of a block its scales.
func spreadScales(dst, each []float32, blocks int) {
	for j := range 2 * blocks {
		copy(dst[panelN*j:], each[j/2*panelN:][:panelN])
	}
}

func portableTable() tableRoutines {
	return tableRoutines{matvec: matvecTableGo, unpack: unpackTableGo, look: lookGo, absmax: absmaxGo}
}

func matvecTableGo(w *byte, x *int16, records *record, dst *float32, table *[32]byte, blocks int, scales scaling, next lookup) {
	lookGo(next, blocks)
	n := blocks * quant.FourBitBlock
	pairs, each := make([]int16, n*panelN), make([]float32, panelN*n/inputBlock)
	unpackTableGo(w, &pairs[0], table, blocks)
	absmaxGo(scales, blocks)
	spreadScales(each, unsafe.Slice(scales.x, panelN*blocks), blocks)
	packedTileGo(x, 0, records, 0, &pairs[0], &each[0], nil, dst, 0, n/inputBlock, inputBlock/2)
}

func unpackTableGo(w *byte, pairs *int16, table *[32]byte, blocks int) {
	codes := unsafe.Slice(w, blocks*quant.FourBitBlock/2*panelN)
	for p := range blocks * quant.FourBitBlock {
		for r := range panelN {
			i := p % 8
			code := codes[p/8*64+4*r+i%2*2+i/2%2] >> (i / 4 * 4) & 15
			value := int16(uint16(table[code]) | uint16(table[16+code])<<8)
			*(*int16)(unsafe.Add(unsafe.Pointer(pairs), 64*(p/2)+4*r+2*(p%2))) = value
		}
	}
}

func lookGo(l lookup, blocks int) {
	for i, c := range unsafe.Slice(l.codes, panelN*blocks) {
		*at(l.dst, i) = l.values[c]
	}
}

func absmaxGo(s scaling, blocks int) {
	for i := range panelN * blocks {
		rest := float32(*at(s.x, i) * *at(s.groups, i%panelN)) // rounded, not fused
		*at(s.x, i) = float32(rest+s.offset) * s.factor
	}
}
