package quant

import (
	"math"
	"sort"
)

// encoder finds the code of a number by its place among ascending decision bounds: how many
// of them it is above.
//
// The fast search takes the sign, the exponent and the first bits of the fraction as an
// index into a table of cells. Cells are so narrow that each holds at most one bound, so one
// comparison is left.
type encoder struct {
	bounds []float32
	codes  []byte // by place, one more than there are bounds
	cells  *Cells
}

// Cell is the numbers that share their first bits: the one bound among them, as an integer
// that compares as floats do, and the codes of numbers not above it and above it.
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
	cellShift = 23 - 7             // lower bits of a float, which do not tell its cell
	FirstCell = (127 - 24) << 7    // the first bits of the smallest magnitude with a cell of its own
	lastCell  = 127<<7 - FirstCell // that of 1, which is above all bounds
	SignCells = 4096               // space for the cells of one sign
	cellMask  = 2*SignCells - 1    // negative numbers have the upper half
	signBit   = 1 << 31
)

func newEncoder(bounds []float32, codes []byte) *encoder {
	e := &encoder{bounds: bounds, codes: codes, cells: new(Cells)}
	for i := range uint32(lastCell + 1) {
		from := (i + FirstCell) << cellShift
		to := from + 1<<cellShift - 1
		if i == 0 {
			from = 0
		}
		e.cells[i] = e.cell(math.Float32frombits(from), math.Float32frombits(to))
		e.cells[i+SignCells] = e.cell(-math.Float32frombits(to), -math.Float32frombits(from))
	}
	return e
}

// cell describes the numbers from lo to hi.
func (e *encoder) cell(lo, hi float32) Cell {
	base := e.below(lo)
	if e.below(hi) == base {
		return Cell{math.MaxInt32, [2]byte{e.codes[base], e.codes[base]}}
	}
	return Cell{order(math.Float32bits(e.bounds[base])), [2]byte(e.codes[base:])}
}

// below counts the bounds below x.
func (e *encoder) below(x float32) int {
	return sort.Search(len(e.bounds), func(i int) bool { return !(x > e.bounds[i]) })
}

// find is the code of x, for |x| up to 1 and a little more, without a branch.
func (e *encoder) find(x float32) byte { return find(e.cells, x) }

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

// findPairs writes the codes of src·r, two to a byte, the first in the upper half.
func (e *encoder) findPairs(dst []byte, src []float32, r float32) {
	cells := e.cells // stays in a register
	src = src[:2*len(dst)]
	for i := range dst {
		dst[i] = find(cells, src[2*i]*r)<<4 | find(cells, src[2*i+1]*r)
	}
}
