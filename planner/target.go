package planner

// target is a model that choices are tried on, or a miniature of it, with what was found
// out about it so far.
type target struct {
	*Layout
	writer      *Writer
	splits      map[int][]int // by number of devices, see split
	costs       map[blockKey]blockCost
	updateTimes []updateTime // by slab, see updateSeconds
}

func newTarget(b *Layout) *target {
	return &target{Layout: b, writer: NewWriter(b), splits: map[int][]int{}, costs: map[blockKey]blockCost{}}
}
