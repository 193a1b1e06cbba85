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
func (b *Layout) FindRepeats() (best Repeats) {
	for period := 1; period <= longestPeriod; period++ {
		from := 0
		for i := range b.Model.Blocks {
			if i+period < len(b.Model.Blocks) && b.alike(i, i+period) {
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
func (b *Layout) alike(i, j int) bool {
	x, y := b.Slabs.OfBlock[i], b.Slabs.OfBlock[j]
	if b.Model.Blocks[i].Kind != b.Model.Blocks[j].Kind || b.layouts[i] != b.layouts[j] || len(x) != len(y) || (i > b.FirstTrained) != (j > b.FirstTrained) || (i == b.FirstTrained) != (j == b.FirstTrained) {
		return false
	}
	for n := range x {
		if b.Slabs.UserCount[x[n]] > 1 || b.Slabs.UserCount[y[n]] > 1 || b.HomeBytes[x[n]] != b.HomeBytes[y[n]] {
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
func (b *Layout) Shortened(r Repeats, times int) (*Layout, error) {
	short, err := New(r.Shortened(b.Model, times), b.Goal, b.Site)
	if err == nil {
		short.UsualPiece, short.kernels, short.levels = b.PieceElements(), b.kernels, b.levels
	}
	return short, err
}
