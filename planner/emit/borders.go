package emit

import (
	"slices"

	"spillway/planner/layout"
)

// borders are the numbers of the buffers between blocks, -1 for none: by block, by index
// among the values that it takes from the block before, and by micro-batch. There is a
// border behind the last block too.
type borders struct {
	width, micros int
	ids           []int
}

// newBorders has no buffers yet.
func newBorders(l *layout.Layout) *borders {
	list := &borders{width: l.MostCarries, micros: l.Goal.MicroBatches}
	list.ids = slices.Repeat([]int{-1}, (len(l.Model.Blocks)+1)*list.width*list.micros)
	return list
}

// at is where the number of a buffer is kept.
func (b *borders) at(block, index, micro int) *int {
	return &b.ids[(block*b.width+index)*b.micros+micro]
}

// appendPresent appends where the numbers are kept of those buffers of a border that exist.
func (b *borders) appendPresent(list []*int, block, micro int) []*int {
	for i := range b.width {
		if id := b.at(block, i, micro); *id >= 0 {
			list = append(list, id)
		}
	}
	return list
}
