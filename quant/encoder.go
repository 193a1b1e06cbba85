package quant

import (
	"math"
	"sort"
)

// ladder finds the code of a number by its place among ascending rungs: how many of
// them it is above.
//
// The fast way looks at the sign, the exponent and the first bits of the fraction, which
// are one index into cells so narrow that each holds at most one rung; what is left is
// one comparison.
type encoder struct {
	bounds []float32
	codes  []byte // of the places, one more than rungs
	cells  *Cells
}

// Cell holds the numbers of some first bits: its one rung, as an integer that compares
// as floats do, and the codes of what is not above it and of what is.
type Cell struct {
	Bound int32
	Codes [2]byte
}

// Cells of positive numbers, then those of negative ones, as vectors search in them: the
// cell of x has the number max(0, |x|>>16 - FirstCell), of x's bits, and SignCells more
// for a negative x.
type Cells [2 * SignCells]Cell

// Magnitudes from 2^-24 to 1 have 128 cells per octave; smaller ones share the first.
const (
	cellShift = 23 - 7             // bits of a float that tell nothing about its cell
	FirstCell = (127 - 24) << 7    // the first bits of the smallest magnitude kept apart
	lastCell  = 127<<7 - FirstCell // that of 1, which is above all rungs
	SignCells = 4096               // room for the cells of one sign
	cellMask  = 2*SignCells - 1    // negative numbers have the upper half
	signBit   = 1 << 31
)

func newEncoder(rungs []float32, codes []byte) *encoder {
	l := &encoder{bounds: rungs, codes: codes, cells: new(Cells)}
	for i := range uint32(lastCell + 1) {
		from := (i + FirstCell) << cellShift
		to := from + 1<<cellShift - 1
		if i == 0 {
			from = 0
		}
		l.cells[i] = l.cell(math.Float32frombits(from), math.Float32frombits(to))
		l.cells[i+SignCells] = l.cell(-math.Float32frombits(to), -math.Float32frombits(from))
	}
	return l
}

// cell describes the numbers from lo to hi.
func (l *encoder) cell(lo, hi float32) Cell {
	base := l.below(lo)
	if l.below(hi) == base {
		return Cell{math.MaxInt32, [2]byte{l.codes[base], l.codes[base]}}
	}
	return Cell{order(math.Float32bits(l.bounds[base])), [2]byte(l.codes[base:])}
}

// below counts the rungs below x.
func (l *encoder) below(x float32) int {
	return sort.Search(len(l.bounds), func(i int) bool { return !(x > l.bounds[i]) })
}

// plain is the code of x by comparing with every rung.
func (l *encoder) plain(x float32) byte {
	n := 0
	for _, r := range l.bounds {
		if x > r {
			n++
		}
	}
	return l.codes[n]
}

// find is plain for |x| up to 1 and a little more, without a branch.
func (l *encoder) find(x float32) byte { return find(l.cells, x) }

func find(cells *Cells, x float32) byte {
	bits := math.Float32bits(x)
	at := int32(bits&^signBit>>cellShift) - FirstCell
	at &^= at >> 31 // at least 0
	c := &cells[(uint32(at)+bits>>31*SignCells)&cellMask]
	above := uint64(int64(c.Bound)-int64(order(bits))) >> 63
	return c.Codes[above]
}

// order maps the bits of floats to integers that compare as the floats do.
func order(bits uint32) int32 { return int32(bits) ^ int32(bits)>>31&math.MaxInt32 }

// findAll writes the codes of src·r.
func (l *encoder) findAll(dst []byte, src []float32, r float32) {
	cells := l.cells // kept in a register
	for i, x := range src[:len(dst)] {
		dst[i] = find(cells, x*r)
	}
}

// findPairs writes the codes of src·r, two to a byte, the first in the upper half.
func (l *encoder) findPairs(dst []byte, src []float32, r float32) {
	cells := l.cells
	src = src[:2*len(dst)]
	for i := range dst {
		dst[i] = find(cells, src[2*i]*r)<<4 | find(cells, src[2*i+1]*r)
	}
}
