package layout

import (
	"fmt"
	"strconv"

	"spillway/plan"
	"spillway/planner/pass"
)

// piece is a range of a slab's elements, what the states of it take, and what scratch
// memory its update needs.
type Piece struct{ From, To, States, Scratch int64 }

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
func (b *Layout) PieceElements() int64 {
	if b.UsualPiece > 0 {
		return b.UsualPiece
	}
	var sum, n int64
	for _, s := range b.Slabs.List {
		if s.Elements > 0 {
			sum, n = sum+s.Elements, n+1
		}
	}
	b.UsualPiece = max(leastPiece, pass.AlignUp(sum/max(2*n, 1), b.Site.Alignment))
	return b.UsualPiece
}

// mostPieces is how many the largest slab is cut into where state moves.
func (b *Layout) MostPieces() int {
	var largest int64
	for _, s := range b.Slabs.List {
		largest = max(largest, s.Elements)
	}
	step := b.PieceElements()
	return int((largest + step - 1) / step)
}

// cut gives the pieces of a slab with at most so many elements each, up to the next
// block of states, or more where a param must be updated whole.
func (b *Layout) Pieces(slab int, step int64) ([]Piece, error) {
	key := pieceSizes{slab, step}
	if had, ok := b.cuts[key]; ok {
		return had, nil
	}
	s := &b.Slabs.List[slab]
	var list []Piece
	for from := int64(0); from < s.Elements; {
		to := min(from+pass.AlignUp(step, plan.StateBlockElements), s.Elements)
		if b.Optimizer.Rule.WholeParam() {
			to = wholeParams(s, from, to)
		}
		stretches := b.Optimizer.Spans(s, plan.Piece{From: from, To: to})
		scratch, err := b.updateScratch(stretches)
		if err != nil {
			return nil, fmt.Errorf("updating slab %s: %w", s.Name, err)
		}
		list, from = append(list, Piece{from, to, plan.StateBytes(stretches), scratch}), to
	}
	b.cuts[key] = list
	return list, nil
}

// updateScratch is the most scratch memory the update of some stretches needs; an error
// where the device has no kernel for one.
func (b *Layout) updateScratch(stretches []plan.Span) (most int64, err error) {
	for _, s := range stretches {
		key := updateKey(s)
		bytes, known := b.scratches[key]
		if !known {
			if bytes, err = b.askUpdate(s); err != nil {
				return 0, fmt.Errorf("params from %s on: %w", s.Name, err)
			}
			b.scratches[key] = bytes
		}
		most = max(most, bytes)
	}
	return most, nil
}

func (b *Layout) askUpdate(s plan.Span) (scratch int64, err error) {
	call, err := b.Optimizer.Call(s)
	if err != nil {
		return 0, err
	}
	k, err := b.kernels.Kernel(call)
	if err != nil {
		return 0, err
	}
	return k.Workspace(), nil
}

// updateKey is equal for stretches whose updates are one call. There can be very many
// of them.
func updateKey(s plan.Span) string {
	var key []byte
	for _, n := range s.Shape {
		key = strconv.AppendInt(append(key, ' '), n, 10)
	}
	for _, state := range s.States {
		key = append(key, ' ', 'a'+byte(state.Type.DType))
	}
	return string(key)
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

// keptBytes is what the weights of slabs take, and what the optimizer keeps of them.
func (b *Layout) slabHomeBytes() []int64 {
	kept := make([]int64, len(b.Slabs.List))
	for k, s := range b.Slabs.List {
		kept[k] = s.WeightBytes
		for _, p := range s.Params {
			for _, state := range p.States {
				kept[k] += state.Bytes()
			}
		}
		if b.HasMaster(k) {
			kept[k] += 4 * s.Elements
		}
	}
	return kept
}
