package layout

import (
	"slices"

	"spillway/spec"
)

// repeats is the longest part of a model that repeats itself: periods of some blocks,
// each with slabs of its own that equal those of the period before.
type Repeats struct {
	First  int // block
	Blocks int // of a period
	Times  int // there are
}

// longestPeriod is how many blocks a period may have: models that alternate between
// kinds of layers do so in a short rhythm.
const longestPeriod = 8

// findRepeats finds the part with most blocks, and of equal ones that with the shortest
// period.
func (l *Layout) FindRepeats() (best Repeats) {
	for period := 1; period <= longestPeriod; period++ {
		from := 0
		for i := range l.Model.Blocks {
			if i+period < len(l.Model.Blocks) && l.alike(i, i+period) {
				continue
			}
			now := Repeats{from, period, (i + period - from) / period}
			if now.Times > 1 && now.Blocks*now.Times > best.Blocks*best.Times {
				best = now
			}
			from = i + 1
		}
	}
	return best
}

// alike says whether two blocks are the same in all that a plan is about.
func (l *Layout) alike(i, j int) bool {
	x, y := l.Slabs.OfBlock[i], l.Slabs.OfBlock[j]
	if l.Model.Blocks[i].Kind != l.Model.Blocks[j].Kind || l.programs.layouts[i] != l.programs.layouts[j] || len(x) != len(y) || (i > l.FirstTrained) != (j > l.FirstTrained) || (i == l.FirstTrained) != (j == l.FirstTrained) {
		return false
	}
	for n := range x {
		if l.Slabs.UserCount[x[n]] > 1 || l.Slabs.UserCount[y[n]] > 1 || l.Slabs.HomeBytes[x[n]] != l.Slabs.HomeBytes[y[n]] {
			return false
		}
	}
	return true
}

// shortened is the model with fewer periods.
func (r Repeats) Shortened(m *spec.Model, times int) *spec.Model {
	short := *m
	short.Params, short.Blocks = nil, nil
	ids := map[int]int{}
	cut := r.First + r.Blocks*times
	for i, block := range m.Blocks {
		if i >= cut && i < r.First+r.Blocks*r.Times {
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
func (l *Layout) Shortened(r Repeats, times int) (*Layout, error) {
	short, err := New(r.Shortened(l.Model, times), l.Goal, l.Site)
	if err == nil {
		short.pieces.usual, short.programs.kernels, short.levels = l.PieceElements(), l.programs.kernels, l.levels
	}
	return short, err
}
