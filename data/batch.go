package data

// Ignored is the target of a position that is not learned.
const Ignored = -100

// Padding is the segment of a position that belongs to no document.
const Padding = -1

// Batch is some rows of the stream. All slices are Rows × Length, row after row.
type Batch struct {
	Rows   int
	Length int
	// First is the place of the first row in the stream; the others follow it.
	First      int64
	Tokens     []int32
	Targets    []int32 // the next token of the same document, else Ignored
	Positions  []int32 // of a token within its document, as far as the row has it
	Segments   []int32 // number of the document in its row, from 0, or Padding
	LossTokens int     // targets that are learned
	NonPadding int     // tokens that are not padding
}

// NewBatch makes an empty batch for Loader.Next to fill.
func NewBatch(rows, length int) *Batch {
	n := rows * length
	return &Batch{
		Rows: rows, Length: length,
		Tokens: make([]int32, n), Targets: make([]int32, n), Positions: make([]int32, n), Segments: make([]int32, n),
	}
}

// row is one row of a batch while it is filled.
type row struct {
	tokens, targets, positions, segments []int32
	used                                 int // positions filled so far
	documents                            int32
	lossTokens                           int
}

func (b *Batch) row(i int) row {
	lo, hi := i*b.Length, (i+1)*b.Length
	return row{tokens: b.Tokens[lo:hi], targets: b.Targets[lo:hi], positions: b.Positions[lo:hi], segments: b.Segments[lo:hi]}
}

func (r *row) free() int { return len(r.tokens) - r.used }

// place adds n tokens of a document, from its token number offset on. Each predicts
// the one after it; the last one's is not in this row.
func (r *row) place(d Document, offset, n int) {
	at, tokens := r.used, d.Tokens[offset:offset+n]
	copy(r.tokens[at:], tokens)
	for i := range tokens {
		r.positions[at+i] = int32(i)
		r.segments[at+i] = r.documents
		r.targets[at+i] = Ignored
	}
	if d.InLoss == nil {
		r.addTargets(tokens, 1, n)
	}
	for _, l := range d.InLoss {
		r.addTargets(tokens, max(l.Start-offset, 1), min(l.End-offset, n))
	}
	r.used += n
	r.documents++
}

// learn makes some of the tokens placed now targets of those before them.
func (r *row) addTargets(tokens []int32, from, to int) {
	for i := from; i < to; i++ {
		r.targets[r.used+i-1] = tokens[i]
		r.lossTokens++
	}
}

// pad fills what is left.
func (r *row) pad() {
	for i := r.used; i < len(r.tokens); i++ {
		r.tokens[i], r.targets[i], r.positions[i], r.segments[i] = 0, Ignored, 0, Padding
	}
}
