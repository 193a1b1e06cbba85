// Package kernel holds the inner loops of the CPU device: functions on float32
// slices that know nothing of operations, plans or memory.
//
// Every loop exists as plain Go (the portable path, and the one that is obviously
// right) and, on amd64, as assembly for AVX2 with FMA and for AVX-512. A routines
// value gathers one implementation of all of them; the best one the CPU has
// is chosen when the program starts, and tests run all that are available.
//
// Results never depend on the number of threads. Work is cut into pieces of fixed
// size, each piece is computed by one worker, and sums over pieces are taken in
// piece order. They may depend on the path: AVX-512 adds in another order than AVX2.
package kernel

import (
	"fmt"

	"spillway/quant"
)

// routines is one implementation of every inner loop. Slices that are written or
// read together have the same length; the exported functions see to it.
type routines struct {
	name string

	// mr and nr are the rows and columns of a register tile, heights the numbers of
	// rows for which tile functions exist, largest first.
	mr, nr  int
	heights []int
	// tileCols and tileRows are indexed by height. See tileFunc.
	tileCols, tileRows [maxRows + 1]tileFunc
	// lineCols and lineRows do the same of whole tiles side by side, without going back to Go for
	// each. They may be nil.
	lineCols, lineRows lineFunc
	linePairs          bool // they prefetch pairs of cache lines, see later
	// packCopy and packTranspose fill panels, see pack.go.
	packCopy      packCopyFunc
	packTranspose packTransposeFunc

	bf16, f16  half  // matmuls with weights of these types, see half.go
	pairs      pairs // matmuls of bf16 by bf16, see pairs.go
	packed     packedRoutines
	compressed compressed // matmuls with weights in quant.CompressedBF16, see compressed.go

	// planes are indexed by planeWidths and their number of places, runWeights by their number of elements; see planes.go. All
	// but those of PlaneCols channels may be nil.
	planes     [len(planeWidths)][planeRows + 1]planeFunc
	runWeights [runTaps + 1]runWeightsFunc
	// runWeightsOfThree is for three short lines of a window. It may be nil.
	runWeightsOfThree runWeightsOfThreeFunc
	planeWeights      planeWeightsFunc
	planeFill         planeFillFunc
	winograd          winograd
	strided           strided
	depthwise         [planeRows + 1]depthwiseFunc
	// depthwiseWide are those of vectors of depthwiseWide channels. They may be nil.
	depthwiseWide [planeRows + 1]depthwiseFunc
	// three and threeWeights are indexed by their number of lines, see depthwisethree.go. They may be nil.
	three, threeWeights [ThreeRows + 1]threeFunc
	// seven are indexed by their number of places, see depthwiseseven.go. They may be nil.
	seven [sevenMost + 1]sevenFunc
	// groupsThree and groupsThreeWeights are indexed so too, see groupsthree.go. They may be nil.
	groupsThree, groupsThreeWeights [ThreeRows + 1]groupsThreeFunc
	// depthwiseWeights are indexed by their number of triples.
	depthwiseWeights [depthwiseTriples + 1]depthwiseWeightsFunc

	// saturate runs chains of multiply-adds in registers, see saturate.go.
	saturate func(rounds int, sums *float32)
	chains   int // sums it writes

	// nonTemporal copies whole cache lines past the caches, or zeros where src is nil. It may be nil.
	nonTemporal func(dst, src *float32, n int)
	// largest is Largest of a multiple of largestLanes. It may be nil.
	largest func(top *float32, at *int32, x *float32, n int, place int32)

	activations [funcs]activation
	exp         func(dst, x []float32)

	add, mul, addMul func(dst, x, y []float32)
	scale, addScaled func(dst, x []float32, s float32)
	rotate           func(y, x, cos, sin []float32, heads, width int)
	angles           func(cos, sin, freq []float32, position float32, cosTimes, sinTimes float64) // of a multiple of lanesMost

	sum, max func(x []float32) float32
	squares  func(x []float32) float64 // of a multiple of lanesMost
	dot      func(x, y []float32) float32
	dot3     func(x, y, z []float32, shift float32) float32 // Σ x·y·(z - shift)
	spread   func(x []float32, mean float32) float32        // Σ (x - mean)²
	expSum   func(dst, x []float32, shift float32) float32

	norm       func(dst, x, w []float32, scale, shift float32)
	normGrad   func(dx, x, w, dy []float32, a, b, c float32)
	normWeight func(dw, x, dy []float32, scale, shift float32)

	// Columns of a tile of attention scores, see columns.go. Rows are a multiple of
	// lanesMost long.
	columnMax  func(m []float32, s *float32, step, rows int)
	columnExp  func(sum, m []float32, s *float32, step, rows int)
	columnGrad func(delta []float32, d, p *float32, step, rows int, scale float32)

	drop func(dst, x []float32, s dropScalars)
	// dropLine takes a multiple of lanesMost.
	dropLine func(x []float32, w *lineWords, s lineScalars)
	// roundStates takes a multiple of 2·lanesMost; at is the stream and a fourth of the position.
	roundStates func(dst []uint16, src []float32, at uint64)
	// roundWeights takes a multiple of lanesMost; at is the stream and the position.
	roundWeights func(dst []uint16, src []float32, at uint64)

	touch   func(w, g, m, v []float32) // see Touch
	adam    func(w, g, m, v []float32, s Adam)
	sgd     func(w, g, m []float32, s sgdScalars)
	lion    func(w, g, m []float32, s Lion)
	rmsprop func(w, g, v []float32, s RMSprop)

	sgdBare func(w, g []float32, s sgdScalars)

	// dots says that there are matmuls whose sums are in any order, see dots.go, and wideDots that those have sixteen lanes: of
	// eight they need more arithmetic for a byte than memory gives all cores of a large CPU.
	dots, wideDots bool

	fourBit func(dst []float32, codes []byte, absmax []float32, code *quant.FourBit) // of whole blocks
	// fromDynamic takes a multiple of lanesMost.
	fromDynamic func(dst []float32, codes []byte, absmax float32, code *quant.Dynamic)
}

// maxRows and maxCols bound the register tile of any path.
const (
	maxRows = 6
	maxCols = 64
)

// lanesMost is the largest number of lanes of a path: where assembly takes whole vectors,
// the rest is done in plain Go.
const lanesMost = 16

// active is the path in use: the best one of this CPU, see available.
var active = best()

// Name says which path is in use: "avx512", "avx2" or "portable".
func Name() string { return active.name }

// PathNames are the names of all paths, on whatever CPU, slowest first.
var PathNames = []string{"portable", "avx2", "avx512"}

// Paths lists what Choose takes on this CPU, slowest first.
func Paths() (names []string) {
	for _, r := range available() {
		names = append(names, r.name)
	}
	return names
}

// Choose selects a path instead of the best one, to compare them. Nothing may be
// running meanwhile. It returns the path that was in use.
func Choose(name string) (before string, err error) {
	for _, r := range available() {
		if r.name == name {
			before, active = active.name, r
			return before, nil
		}
	}
	return "", fmt.Errorf("no path %q on this CPU; there are %v", name, Paths())
}

// Chosen is the name of the path in use where that is not the best one of this CPU, and "" where it is.
func Chosen() string {
	if active.name == best().name {
		return ""
	}
	return active.name
}

func best() *routines {
	all := available()
	return all[len(all)-1]
}
