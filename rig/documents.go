package rig

import (
	"math"

	"spillway/op"
)

// documentRows is how many sequences of documents an operand has; they repeat.
const documentRows = 8

// documents is which document each position of some sequences is in. Lengths are drawn so that a position is in a document
// of so many positions on average: kernels compute in tiles, of which documents of one length would fill whole ones.
func documents(positions, mean int64) []int32 {
	least, most := 1.0, 4*float64(positions)
	var list []int32
	for range 32 {
		middle := math.Sqrt(least * most)
		var longer bool
		if list, longer = documentsAround(positions, mean, middle); longer {
			most = middle
		} else {
			least = middle
		}
	}
	return list
}

// documentsAround draws lengths around a mean, and says whether positions are in documents of more than that many positions.
func documentsAround(positions, mean int64, length float64) (list []int32, longer bool) {
	var squares int64
	for row := range int64(documentRows) {
		for left, n := positions, int32(0); left > 0; n++ {
			u := float64(op.Uniform(2, uint32(row), uint64(n)))
			own := min(max(int64(math.Round(-length*math.Log1p(-u))), 1), left)
			for range own {
				list = append(list, n)
			}
			left, squares = left-own, squares+own*own
		}
	}
	return list, squares > mean*int64(len(list))
}
