package data

// Ignored is the target of a position that is not in the loss, as ignore_index in PyTorch.
const Ignored = -100

// Padding is the segment of a position that belongs to no document.
const Padding = -1

// Batch is a number of consecutive rows of the stream. Each slice holds Rows × Length
// values, row after row.
type Batch struct {
	Rows       int
	Length     int
	First      int64 // index of the first row in the stream
	Tokens     []int32
	Targets    []int32 // the next token of the same document, or Ignored
	Positions  []int32 // position of a token, counted from where its document begins in the row
	Segments   []int32 // index of the document within its row, from 0, or Padding
	LossTokens int     // number of targets that are not Ignored
	NonPadding int     // number of tokens that are not padding
}

// NewBatch allocates a batch for Loader.Next to fill.
func NewBatch(rows, length int) *Batch {
	n := rows * length
	return &Batch{
		Rows: rows, Length: length,
		Tokens: make([]int32, n), Targets: make([]int32, n), Positions: make([]int32, n), Segments: make([]int32, n),
	}
}

// row is one row of a batch while a Loader fills it.
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

// place appends n tokens of a document, beginning with its token offset. The target of
// each is the token after it; the last one has no target, as the row does not hold the
// token that follows.
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

// addTargets makes each of the tokens from to to-1 the target of the token before it.
// The tokens are those that place is appending.
func (r *row) addTargets(tokens []int32, from, to int) {
	for i := from; i < to; i++ {
		r.targets[r.used+i-1] = tokens[i]
		r.lossTokens++
	}
}

// pad fills the rest of the row with padding.
func (r *row) pad() {
	for i := r.used; i < len(r.tokens); i++ {
		r.tokens[i], r.targets[i], r.positions[i], r.segments[i] = 0, Ignored, 0, Padding
	}
}
