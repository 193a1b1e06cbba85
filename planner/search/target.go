package search

import (
	"spillway/planner/emit"
	"spillway/planner/forecast"
	"spillway/planner/layout"
)

// target is a model that choices are tried on, or a miniature of it, with what was found
// out about it so far.
type target struct {
	*layout.Layout
	writer      *emit.Writer
	forecaster  *forecast.Forecaster
	splits      map[int][]int // by number of devices, see split
	costs       map[layout.BlockKey]blockCost
	updateTimes []updateTime // by slab, see updateSeconds
}

func newTarget(b *layout.Layout) *target {
	return &target{Layout: b, writer: emit.NewWriter(b), forecaster: forecast.New(b.Site), splits: map[int][]int{}, costs: map[layout.BlockKey]blockCost{}}
}
