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
	First     int64
	Tokens    []int32
	Targets   []int32 // the next token of the same document, else Ignored
	Positions []int32 // of a token within its document, as far as the row has it
	Segments  []int32 // number of the document in its row, from 0, or Padding
	Counted   int     // targets that are learned
	Real      int     // tokens that are not padding
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
	counted                              int
}

func (b *Batch) row(i int) row {
	lo, hi := i*b.Length, (i+1)*b.Length
	return row{tokens: b.Tokens[lo:hi], targets: b.Targets[lo:hi], positions: b.Positions[lo:hi], segments: b.Segments[lo:hi]}
}

func (r *row) room() int { return len(r.tokens) - r.used }

// place adds tokens of a document, the first of which is its token number offset.
// Each predicts the one after it; the last one's is not in this row.
func (r *row) place(tokens []int32, offset, prompt int) {
	at := r.used
	copy(r.tokens[at:], tokens)
	for i := range tokens {
		r.positions[at+i] = int32(i)
		r.segments[at+i] = r.documents
		r.targets[at+i] = Ignored
		if i+1 < len(tokens) && offset+i+1 >= prompt {
			r.targets[at+i] = tokens[i+1]
			r.counted++
		}
	}
	r.used += len(tokens)
	r.documents++
}

// pad fills what is left.
func (r *row) pad() {
	for i := r.used; i < len(r.tokens); i++ {
		r.tokens[i], r.targets[i], r.positions[i], r.segments[i] = 0, Ignored, 0, Padding
	}
}
