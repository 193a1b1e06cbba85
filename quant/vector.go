package quant

import "math"

// path is one implementation of the loops that take the time, portable or for a vector
// instruction set. All give the same bits.
type path struct {
	name string
	// fourBit codes whole blocks of 64; nil leaves them to the encoder.
	fourBit func(codes []byte, absmax, src []float32, s *search)
	// The others take a multiple of maxLanes.
	absMax func(x []float32) (bits uint32)
	rowI8  func(codes []byte, row []float32, factor float32)
	// dynamic encodes as Dynamic.encodeScaled does; nil leaves it to the encoder.
	dynamic func(codes []byte, src []float32, r float32, cells *Cells, zero, below uint32)
	// fits says that fitAffineVector and fitSymmetricVector may be called: by their names, so that what they get
	// stays on the stack.
	fits bool
}

// maxLanes is the largest number of vector lanes of a path.
const maxLanes = 16

// active is the fastest path of this CPU; available lists the slowest first.
var active = available()[len(available())-1]

// AbsMax is the largest magnitude: infinite or NaN where an element is.
func AbsMax(x []float32) float32 {
	n := len(x) &^ (maxLanes - 1)
	return math.Float32frombits(max(active.absMax(x[:n]), absMaxGo(x[n:])))
}

// search finds the place of a number among 15 bounds in four comparisons, as a binary search
// that vectors can do: each level holds the bounds that may be compared there, by the place
// found so far.
type search struct {
	levels [4][8]float32
	codes  [16]uint8 // by place
}

func newSearch(bounds []float32, codes []byte) *search {
	s := &search{codes: [16]uint8(codes)}
	for level := range s.levels {
		step := 16 >> level
		for i := range 1 << level {
			s.levels[level][i] = bounds[i*step+step/2-1]
		}
	}
	return s
}

// portable is the path without assembly. Blocks and rows of other lengths take it too.
var portable = path{"portable", nil, absMaxGo, rowI8Go, nil, false}

// absMaxGo gives the bits of the largest magnitude; bits are in the order of magnitudes.
func absMaxGo(x []float32) uint32 {
	var a, b, c, d uint32
	for ; len(x) >= 4; x = x[4:] {
		a = max(a, math.Float32bits(x[0])&^signBit)
		b = max(b, math.Float32bits(x[1])&^signBit)
		c = max(c, math.Float32bits(x[2])&^signBit)
		d = max(d, math.Float32bits(x[3])&^signBit)
	}
	for _, f := range x {
		a = max(a, math.Float32bits(f)&^signBit)
	}
	return max(a, b, c, d)
}
