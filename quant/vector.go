package quant

import "math"

// path is one way to do the loops that take the time. All give the same bits.
type path struct {
	name string
	// fourBit codes whole blocks of 64; nil leaves them to the ladder.
	fourBit func(codes []byte, absmax, src []float32, s *search)
	// The others take a multiple of lanesMost.
	absMax func(x []float32) (bits uint32)
	rowI8  func(codes []byte, row []float32, factor float32)
	// dynamic codes as Dynamic.code says; nil leaves it to the ladder.
	dynamic func(codes []byte, src []float32, r float32, cells *Cells, zero, below uint32)
}

// lanesMost is the largest number of lanes of a path.
const maxLanes = 16

// active is the best path of this processor; available lists slowest first.
var active = available()[len(available())-1]

// Largest is the largest magnitude: infinite or not a number where an element is.
func AbsMax(x []float32) float32 {
	n := len(x) &^ (maxLanes - 1)
	return math.Float32frombits(max(active.absMax(x[:n]), absMaxGo(x[n:])))
}

// search finds the place of a number among 15 rungs in four comparisons, which vectors can
// do: each level holds the rungs that may be asked for there, by the places so far.
type search struct {
	levels [4][8]float32
	codes  [16]uint8 // by place
}

func newSearch(rungs []float32, codes []byte) *search {
	s := &search{codes: [16]uint8(codes)}
	for level := range s.levels {
		step := 16 >> level
		for i := range 1 << level {
			s.levels[level][i] = rungs[i*step+step/2-1]
		}
	}
	return s
}

// portable is the path without assembly. Blocks and rows of other lengths take it too.
func portable() path {
	return path{"portable", nil, absMaxGo, rowI8Go, nil}
}

// largestGo gives bits, which are in the order of magnitudes.
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
