package layout

import (
	"fmt"
	"strconv"

	"spillway/plan"
	"spillway/planner/pass"
)

// Piece is a range of a slab's elements that is updated at once, the bytes of its optimizer
// state, and the scratch memory its update needs.
type Piece struct{ From, To, States, Scratch int64 }

// pieceSizes says how a slab is cut.
type pieceSizes struct {
	slab int
	step int64 // elements
}

// leastPiece is the least number of elements that are updated at once where state moves:
// enough for a copy to run at the rate of the link.
const leastPiece = 32 << 20

// PieceElements is how many elements are updated at once where state moves: half a usual
// slab, so that unusually large ones, embeddings above all, need no more memory than others.
func (l *Layout) PieceElements() int64 {
	if l.pieces.usual > 0 {
		return l.pieces.usual
	}
	var sum, n int64
	for _, s := range l.Slabs.List {
		if s.Elements > 0 {
			sum, n = sum+s.Elements, n+1
		}
	}
	l.pieces.usual = max(leastPiece, pass.AlignUp(sum/max(2*n, 1), l.Site.Alignment))
	return l.pieces.usual
}

// MostPieces is how many pieces the largest slab is cut into where state moves.
func (l *Layout) MostPieces() int {
	var largest int64
	for _, s := range l.Slabs.List {
		largest = max(largest, s.Elements)
	}
	step := l.PieceElements()
	return int((largest + step - 1) / step)
}

// Pieces cuts a slab into pieces of at most so many elements, rounded up to blocks of
// quantized state, or more where a param must be updated whole.
func (l *Layout) Pieces(slab int, step int64) ([]Piece, error) {
	key := pieceSizes{slab, step}
	if had, ok := l.pieces.cuts[key]; ok {
		return had, nil
	}
	s := &l.Slabs.List[slab]
	var list []Piece
	for from := int64(0); from < s.Elements; {
		to := min(from+pass.AlignUp(step, plan.StateBlockElements), s.Elements)
		if l.Optimizer.Rule.WholeParam() {
			to = wholeParams(s, from, to)
		}
		stretches := l.Optimizer.Spans(s, plan.Piece{From: from, To: to})
		scratch, err := l.updateScratch(stretches)
		if err != nil {
			return nil, fmt.Errorf("updating slab %s: %w", s.Name, err)
		}
		list, from = append(list, Piece{from, to, plan.StateBytes(stretches), scratch}), to
	}
	l.pieces.cuts[key] = list
	return list, nil
}

// updateScratch is the most scratch memory that updating some spans needs; an error where the
// device has no kernel for one.
func (l *Layout) updateScratch(stretches []plan.Span) (most int64, err error) {
	for _, s := range stretches {
		key := updateKey(s)
		bytes, known := l.pieces.scratches[key]
		if !known {
			call, err := l.Optimizer.Call(s)
			if err != nil {
				return 0, fmt.Errorf("params from %s on: %w", s.Name, err)
			}
			k, err := l.programs.kernels.Kernel(call)
			if err != nil {
				return 0, fmt.Errorf("params from %s on: %w", s.Name, err)
			}
			bytes = k.Workspace()
			l.pieces.scratches[key] = bytes
		}
		most = max(most, bytes)
	}
	return most, nil
}

// updateKey is equal for spans whose updates are the same call. There can be very many, so it
// is made without formatting.
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

// wholeParams moves the end of a piece so that it cuts no param: to the start of the param it
// would cut, or where the piece has no other, to that param's end.
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
