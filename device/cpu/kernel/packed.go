package kernel

import (
	"unsafe"

	"spillway/dtype"
	"spillway/quant"
)

// Packed is the matmul C = X·Wᵀ of a weight in an interleaved type of package quant, with
// integers: inputs are rounded to 16 bits in blocks of 32 that share a power of two, multiplied by
// codes and summed exactly over elements that share a scale, and these sums are added as f32 in
// the order of K.
//
//	C[i, j] = bias[j] + Σb scale(j, b)·scale(i, b) · (Σp code(j, p)·x(i, p)) - minimum(j, b)·sum(i, b)
//
// An input is off by at most 2⁻¹⁵ of the largest of its block, 64 times less than what bf16 is
// off by; inputs in bf16 down to a 127th of the largest stay what they are. A row of C has the
// same bits whatever M and the number of workers.
type Packed struct {
	M, N, K int // N and K of whole blocks of the type
	Format  *PackedFormat
	X       []float32 // [M K]
	W       []byte
	C       []float32 // [M N]
	Bias    []float32 // N elements, or nil
	// Work is scratch memory of at least Workspace elements.
	Work []float32

	path    *packedRoutines
	rounded []int16  // [M inputStep]
	records []record // [M recordStep]
	shares  shares   // of the groups of a matvec
	launch  packedJob
}

// inputStep and recordStep are elements from row to row. Rows are a line more than a power of two
// apart, since first-level caches have room for few lines that are a page apart.
func (g *Packed) inputStep() int  { return g.K + 32 }
func (g *Packed) recordStep() int { return g.K/g.Format.sub + 4 }

// PackedFormat is what a matmul knows of an interleaved type.
type PackedFormat struct {
	block, bytes int // of a row: elements and bytes of a block
	sub          int // elements that share a scale, 16 or 32
	offset       int32
	minima       bool
	index        int    // of the routines
	table        *table // of codes that stand for other numbers, with scales apart
	// code gives the code of an element of sixteen interleaved blocks, and scales those of its sub-block.
	code   func(w []byte, r, i int) int16
	scales func(w []byte, r, sub int) (scale, minimum float32)
}

// packedFormats is how many there are with routines of their own, packedRows the most rows of a tile of any path.
const (
	packedFormats = 4
	packedRows    = 12
)

// PackedFormatOf is the format of an interleaved type, nil for other types.
func PackedFormatOf(t dtype.Type) *PackedFormat {
	switch t {
	case quant.Q4_0x16:
		return &PackedFormat{block: 32, bytes: 18, sub: 32, offset: 8, index: 0, code: codeQ4_0, scales: scalesFirst}
	case quant.Q8_0x16:
		return &PackedFormat{block: 32, bytes: 34, sub: 32, index: 1, code: codeQ8_0, scales: scalesFirst}
	case quant.Q4_Kx16:
		return &PackedFormat{block: 256, bytes: 144, sub: 32, minima: true, index: 2, code: codeQ4K, scales: scalesQ4K}
	case quant.Q6_Kx16:
		return &PackedFormat{block: 256, bytes: 210, sub: 16, offset: 32, index: 3, code: codeQ6K, scales: scalesQ6K}
	}
	if f := tables[t]; f != nil {
		return &PackedFormat{block: quant.FourBitBlock, bytes: quant.FourBitBlock / 2, sub: 32, table: f}
	}
	return nil
}

// bits is the size of rounded inputs.
func (f *PackedFormat) bits() int {
	if f.table != nil {
		return tableBits
	}
	return splitBits
}

// record is what a matmul knows of some elements of an input that share a scale. The assembly
// knows its layout.
type record struct {
	scale float32
	first int32   // what integer sums begin with: what codes are larger by than numbers, times the sum
	sum   float32 // of the elements, as rounded
	_     uint32
}

// blockSums is what rounding finds of 32 elements: their scale, and the sums of each 16.
type blockSums struct {
	scale float32
	sums  [2]int32
}

// Blocks of inputs, the bits their integers have next to the sign, and the power of two that the largest of a block is above
// where they are split.
const (
	inputBlock = 32
	inputBits  = 15
	splitBits  = inputBits - 1
)

// packedRoutines is one implementation of the inner loops.
type packedRoutines struct {
	// round rounds blocks of 32 inputs to integers of so many bits.
	round func(dst *int16, sums *blockSums, x *float32, blocks, bits int)
	// matvec multiplies one row by groups of sixteen outputs of so many blocks each. Where splits says
	// so, the row was split.
	matvec [packedFormats]func(w *byte, x *int16, records *record, dst *float32, blocks, groups int)
	// unpack writes the codes of sixteen outputs as pairs of 16-bit integers, 64 bytes from pair to
	// pair, with their scales and minima, negative.
	unpack [packedFormats]func(w *byte, pairs *int16, scales, minima *float32, blocks int)
	// tiles adds to h rows of 16 columns of C, where h is the index. Steps are in bytes; there are
	// subs records of length pairs each.
	tiles   [packedRows + 1]packedTileFunc
	heights []int

	// split brings the upper bytes of each eight inputs, in the order 0 4 1 5 2 6 3 7 that codes of
	// 4 bits have in a word, in front of their lower bytes: multiplying bytes is cheaper, and
	// 256 times the sums with the upper ones and those with the lower ones are exactly the sums with
	// the inputs. Lower bytes are signed, upper ones what is left.
	split  func(x *int16, n int)
	splits [packedFormats]bool

	table tableRoutines
}

type packedTileFunc func(x *int16, xStep int, records *record, recordStep int, pairs *int16, scales, minima *float32, c *float32, cStep, subs, length int)

// A panel is 16 outputs, whose rows lie together. Of many rows so much of K is unpacked at a time that it stays in the
// caches of a core while rows are read in long runs; it is a multiple of all blocks.
const (
	panelN    = quant.InterleavedRows
	panelSlab = 1024
)

// Workspace is the scratch memory, in elements, that the matmul needs with so many workers.
func (g *Packed) Workspace(workers int) int {
	return g.inputScratch() + workers*g.workerScratch()
}

// inputScratch is for rounded inputs and their records.
func (g *Packed) inputScratch() int { return g.M * (g.inputStep()/2 + 4*g.recordStep()) }

// workerScratch is for sums of blocks, or for an unpacked panel with scales and
// minima and the sums of its outputs.
func (g *Packed) workerScratch() int {
	need := panelSlab*panelN/2 + 2*panelN*panelSlab/g.Format.sub + panelN*g.M
	if g.Format.table != nil {
		need += g.tableScratchSize()
	}
	return roundUp(max(3*(g.K/inputBlock), need), 16)
}

func (g *Packed) scratchOf(worker int) []float32 {
	return g.Work[g.inputScratch()+worker*g.workerScratch():][:g.workerScratch()]
}

// Run computes the matmul on the pool.
func (g *Packed) Run(p *Pool) {
	g.path = &active.packed
	g.rounded = unsafe.Slice((*int16)(unsafe.Pointer(&g.Work[0])), g.M*g.inputStep())
	g.records = unsafe.Slice((*record)(unsafe.Pointer(&g.Work[g.M*g.inputStep()/2])), g.M*g.recordStep())
	g.launch.Packed = g
	g.launch.do = (*Packed).roundRow
	p.LaunchWork(g.M, &g.launch, g.M*g.K)
	if g.M == 1 {
		g.launch.do, g.shares = (*Packed).vector, shares{g.N / panelN, p.Workers()}
		p.LaunchWork(g.shares.pieces(), &g.launch, g.N*g.K)
		return
	}
	g.launch.do = (*Packed).panel
	p.LaunchWork(g.N/panelN, &g.launch, g.M*g.N*g.K)
}

// packedJob is a part of the work.
type packedJob struct {
	*Packed
	do func(g *Packed, worker, piece int)
}

// Run does one piece.
func (j *packedJob) Run(worker, piece int) { j.do(j.Packed, worker, piece) }

// roundRow rounds a row of inputs.
func (g *Packed) roundRow(worker, i int) {
	blocks := g.K / inputBlock
	sums := unsafe.Slice((*blockSums)(unsafe.Pointer(&g.scratchOf(worker)[0])), blocks)
	g.path.round(&g.rounded[i*g.inputStep()], &sums[0], &g.X[i*g.K], blocks, g.Format.bits())
	if g.M == 1 && g.splits() {
		g.path.split(&g.rounded[0], g.K)
	}
	each := inputBlock / g.Format.sub
	records := g.records[i*g.recordStep():][:blocks*each]
	for b, s := range sums {
		if each == 1 {
			sum := s.sums[0] + s.sums[1]
			records[b] = record{scale: s.scale, first: -g.Format.offset * sum, sum: s.scale * float32(sum)}
			continue
		}
		for h, sum := range s.sums {
			records[2*b+h] = record{scale: s.scale, first: -g.Format.offset * sum, sum: s.scale * float32(sum)}
		}
	}
}

func (g *Packed) groupBytes() int {
	return g.K / g.Format.block * g.Format.bytes * panelN
}

// vector computes some outputs of the only row.
func (g *Packed) vector(worker, piece int) {
	first, groups := g.shares.piece(piece)
	c := g.C[first*panelN:][:groups*panelN]
	if g.Format.table != nil {
		g.tableRow(worker, first, groups)
	} else {
		g.path.matvec[g.Format.index](&g.W[first*g.groupBytes()], &g.rounded[0], &g.records[0], &c[0], g.K/g.Format.block, groups)
	}
	if g.Bias != nil {
		Add(c, c, g.Bias[first*panelN:][:len(c)])
	}
}

func (g *Packed) splits() bool { return g.Format.table == nil && g.path.splits[g.Format.index] }

// panel computes 16 outputs of all rows.
func (g *Packed) panel(worker, piece int) {
	col := piece * panelN
	f, scratch, size := g.Format, g.scratchOf(worker), g.groupBytes()
	pairs := (*int16)(unsafe.Pointer(&scratch[0]))
	scales := scratch[panelSlab*panelN/2:]
	minima := scales[panelN*panelSlab/f.sub:]
	sums := minima[panelN*panelSlab/f.sub:][:panelN*g.M]
	clear(sums)
	w := g.W[piece*size:]
	for p0 := 0; p0 < g.K; p0 += panelSlab {
		kc := min(panelSlab, g.K-p0)
		if f.table != nil {
			g.unpackTable(worker, piece, p0/f.block, kc/f.block, pairs, scales)
		} else {
			g.path.unpack[f.index](&w[p0/f.block*f.bytes*panelN], pairs, &scales[0], &minima[0], kc/f.block)
		}
		g.multiply(sums, p0, kc, pairs, scales, minima)
	}
	for i := range g.M {
		c, sum := g.C[i*g.N+col:][:panelN], sums[i*panelN:][:panelN]
		if g.Bias != nil {
			Add(c, sum, g.Bias[col:][:panelN])
		} else {
			copy(c, sum)
		}
	}
}

// multiply adds one slab of K to the sums of a panel.
func (g *Packed) multiply(sums []float32, p0, kc int, pairs *int16, scales, minima []float32) {
	f := g.Format
	var least *float32
	if f.minima {
		least = &minima[0]
	}
	for i := 0; i < g.M; {
		h := fitting(g.path.heights, g.M-i)
		g.path.tiles[h](&g.rounded[i*g.inputStep()+p0], 2*g.inputStep(), &g.records[i*g.recordStep()+p0/f.sub], int(unsafe.Sizeof(record{}))*g.recordStep(),
			pairs, &scales[0], least, &sums[i*panelN], 4*panelN, kc/f.sub, f.sub/2)
		i += h
	}
}

// fitting is the largest of some heights that is at most n.
func fitting(heights []int, n int) int {
	for _, h := range heights {
		if h <= n {
			return h
		}
	}
	return 1
}
