package planner

import (
	"slices"

	"spillway/spec"
)

// repeats is the longest part of a model that repeats itself: periods of some blocks,
// each with slabs of its own that equal those of the period before.
type repeats struct {
	first  int // block
	blocks int // of a period
	times  int // there are
}

// longestPeriod is how many blocks a period may have: models that alternate between
// kinds of layers do so in a short rhythm.
const longestPeriod = 8

// findRepeats finds the part with most blocks, and of equal ones that with the shortest
// period.
func (b *Layout) findRepeats() (best repeats) {
	for period := 1; period <= longestPeriod; period++ {
		from := 0
		for i := range b.model.Blocks {
			if i+period < len(b.model.Blocks) && b.alike(i, i+period) {
				continue
			}
			now := repeats{from, period, (i + period - from) / period}
			if now.times > 1 && now.blocks*now.times > best.blocks*best.times {
				best = now
			}
			from = i + 1
		}
	}
	return best
}

// alike says whether two blocks are the same in all that a plan is about.
func (b *Layout) alike(i, j int) bool {
	x, y := b.slabs.OfBlock[i], b.slabs.OfBlock[j]
	if b.model.Blocks[i].Kind != b.model.Blocks[j].Kind || b.layouts[i] != b.layouts[j] || len(x) != len(y) || (i > b.FirstTrained) != (j > b.FirstTrained) || (i == b.FirstTrained) != (j == b.FirstTrained) {
		return false
	}
	for n := range x {
		if b.slabs.UserCount[x[n]] > 1 || b.slabs.UserCount[y[n]] > 1 || b.homeBytes[x[n]] != b.homeBytes[y[n]] {
			return false
		}
	}
	return true
}

// shortened is the model with fewer periods.
func (r repeats) shortened(m *spec.Model, times int) *spec.Model {
	short := *m
	short.Params, short.Blocks = nil, nil
	ids := map[int]int{}
	cut := r.first + r.blocks*times
	for i, block := range m.Blocks {
		if i >= cut && i < r.first+r.blocks*r.times {
			continue
		}
		block.Params = slices.Clone(block.Params)
		for n, id := range block.Params {
			at, known := ids[id]
			if !known {
				at = len(short.Params)
				ids[id] = at
				short.Params = append(short.Params, m.Params[id])
			}
			block.Params[n] = at
		}
		short.Blocks = append(short.Blocks, block)
	}
	return &short
}

// shortened lays out the model with fewer periods, as the model itself is laid out.
func (b *Layout) shortened(r repeats, times int) (*Layout, error) {
	short, err := New(r.shortened(b.model, times), b.goal, b.site)
	if err == nil {
		short.usualPiece, short.kernels, short.levels = b.pieceElements(), b.kernels, b.levels
	}
	return short, err
}
