package planner

import "spillway/plan"

// piece is a range of a slab's elements, and what the states of it take.
type piece struct{ from, to, states int64 }

// pieceSizes is a way to cut a slab.
type pieceSizes struct {
	slab int
	step int64 // elements
}

// leastPiece is how many elements are updated at once at the least where state moves:
// enough for a copy to run at the link's rate.
const leastPiece = 32 << 20

// pieceElements is how many elements are updated at once: half a usual slab, so that
// unusually large ones, tables of words above all, need no more room than others.
func (b *blueprint) pieceElements() int64 {
	var sum, n int64
	for _, s := range b.slabs.list {
		if s.Elements > 0 {
			sum, n = sum+s.Elements, n+1
		}
	}
	return max(leastPiece, up(sum/max(2*n, 1), b.site.Alignment))
}

// cut gives the pieces of a slab with at most so many elements each, up to the next
// block of states, or more where a param must be updated whole.
func (b *blueprint) cut(slab int, step int64) []piece {
	key := pieceSizes{slab, step}
	if had, ok := b.pieces[key]; ok {
		return had
	}
	s := &b.slabs.list[slab]
	var list []piece
	for from := int64(0); from < s.Elements; {
		to := min(from+up(step, plan.BlockElements), s.Elements)
		if b.update.Rule.Whole() {
			to = wholeParams(s, from, to)
		}
		states := plan.StateBytes(b.update.Stretches(s, plan.Piece{From: from, To: to}))
		list, from = append(list, piece{from, to, states}), to
	}
	b.pieces[key] = list
	return list
}

// wholeParams moves the end of a piece to the start of the param it would cut, or where
// that is the piece's only one to its end.
func wholeParams(s *plan.Slab, from, to int64) int64 {
	others := false
	for _, p := range s.Params {
		end := p.Element + p.Type.Shape.Elements()
		switch {
		case p.Frozen() || end <= from:
		case end <= to:
			others = true
		case p.Element < to && !others:
			return end
		case p.Element < to:
			return p.Element
		}
	}
	return to
}

// keptBytes is what a slab's weights take, and what the optimizer keeps of them.
func (b *blueprint) keptBytes(slab int) int64 {
	s := b.slabs.list[slab]
	bytes := s.WeightBytes
	if !b.training() || s.Elements == 0 {
		return bytes
	}
	if b.goal.Master {
		bytes += 4 * s.Elements
	}
	for _, p := range b.cut(slab, s.Elements) {
		bytes += p.states
	}
	return bytes
}
