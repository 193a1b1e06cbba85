package emit

import (
	"spillway/planner/layout"
)

// borders are the buffers at the borders of blocks, -1 for none: by block, index of
// the carry, and micro-batch. There is a border behind the last block too.
type borders struct {
	width, micros int
	ids           []int
}

// newBorders has none yet.
func newBorders(b *layout.Layout) *borders {
	list := &borders{width: b.MostCarries, micros: b.Goal.MicroBatches}
	list.ids = make([]int, (len(b.Model.Blocks)+1)*list.width*list.micros)
	for i := range list.ids {
		list.ids[i] = -1
	}
	return list
}

// at is where a buffer is written down.
func (l *borders) at(block, index, micro int) *int {
	return &l.ids[(block*l.width+index)*l.micros+micro]
}

// some appends where the buffers of a border that are there are written down.
func (l *borders) appendPresent(list []*int, block, micro int) []*int {
	for i := range l.width {
		if id := l.at(block, i, micro); *id >= 0 {
			list = append(list, id)
		}
	}
	return list
}
