// Package kernel holds the inner loops of the CPU device: functions on float32
// slices that know nothing of operations, plans or memory.
//
// Every loop exists as plain Go (the portable path, and the one that is obviously
// right) and, on amd64, as assembly for AVX2 with FMA and for AVX-512. A routines
// value gathers one implementation of all of them; the best one the processor has
// is chosen when the program starts, and tests run all that are available.
//
// Results never depend on the number of threads. Work is cut into pieces of fixed
// size, each piece is computed by one worker, and sums over pieces are taken in
// piece order. They may depend on the path: AVX-512 adds in another order than AVX2.
package kernel

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
	// packCopy and packTranspose fill panels. See packFunc.
	packCopy, packTranspose packFunc
}

// maxRows and maxCols bound the register tile of any path.
const (
	maxRows = 12
	maxCols = 32
)

// active is the path in use: the best one of this processor, see available.
var active = best()

// Name says which path is in use: "avx512", "avx2" or "portable".
func Name() string { return active.name }

func best() *routines {
	all := available()
	return all[len(all)-1]
}
