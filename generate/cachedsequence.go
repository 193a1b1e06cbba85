package generate

import (
	"fmt"
	"slices"

	"spillway/executor"
	"spillway/op"
)

// cachedSequence is a text of a Session.
type cachedSequence struct {
	session  *Session
	slot     int
	tokens   []int32
	computed int // tokens whose keys and values are stored
	highest  int // the last position that was ever stored since the first, -1 for none

	ready   bool
	fetched bool      // logits are in the sequence's own memory
	step    int       // whose result has them otherwise
	part    int       // of that step
	row     int       // of its result
	logits  []float32 // its own memory

	draws   bool // tokens are to be drawn on the device, as drawing says
	drawing op.Sampling
	isDrawn bool // drawn is the token after the last
	drawn   int32
	each    func(position int, logits []float32) // wants those of every token
	guessing
}

// Draw asks for the next tokens to be drawn on the device where it can; nil asks for logits. It says
// whether there may be a step that does.
func (q *cachedSequence) Draw(as *op.Sampling) bool {
	if q.draws = as != nil && len(q.session.draws) > 0; q.draws {
		q.drawing = *as
	}
	return q.draws
}

// Drawn is the token after the last, where it was drawn on the device.
func (q *cachedSequence) Drawn() (token int32, ok bool) { return q.drawn, q.isDrawn }

// outputs is how many of its next rows get logits: the last, or all where they are wanted.
func (q *cachedSequence) outputs(rows int) int {
	switch {
	case q.each != nil:
		return rows
	case rows > 0 && rows == len(q.tokens)-q.computed:
		return 1
	}
	return 0
}

// Each has the logits after every token that is computed from now on given to f, which must not
// keep them; nil ends that. A plan with more Outputs computes more of them in a step. Branches end.
func (q *cachedSequence) Each(f func(position int, logits []float32)) {
	q.endBranches()
	q.each, q.guesses = f, 0
}

// Guessed says how many of the guesses of the last step were right.
func (q *cachedSequence) Guessed(right int) {
	if w := q.session.watcher; w != nil {
		w.Guessed(right)
	}
}

// shared says that as many texts more begin with the prompt that was computed.
func (q *cachedSequence) shared(texts int) {
	if w := q.session.watcher; w != nil && texts > 0 {
		w.Shared(texts)
	}
}

func (q *cachedSequence) waits() bool { return q.computed < len(q.tokens) }

// Ready says whether logits are there, those of branches too.
func (q *cachedSequence) Ready() bool {
	return q.ready && !slices.ContainsFunc(q.branches, (*cachedSequence).waits)
}

// Tokens is the text so far.
func (q *cachedSequence) Tokens() []int32 { return q.tokens }

// Len is the number of tokens.
func (q *cachedSequence) Len() int { return len(q.tokens) }

// Logits of the token after the last; nil where they are not ready, or gone with the run.
func (q *cachedSequence) Logits() []float32 {
	if !q.ready || !q.fetched && q.session.ended() {
		return nil
	}
	q.fetch()
	return q.logits
}

// fetch converts the logits from the result of their step.
func (q *cachedSequence) fetch() {
	if q.fetched {
		return
	}
	q.logits, q.fetched = logitsOf(q.session.step(q.step).Part(q.part), q.row, q.logits), true
}

// logitsOf are the logits of an output of a step, in to where it has place.
func logitsOf(at *executor.Step, output int, to []float32) []float32 {
	bytes := len(at.Result) / int(at.Outputs)
	raw := at.Result[output*bytes : (output+1)*bytes]
	n := bytes / int(at.Type.Bytes(1))
	if cap(to) < n {
		to = make([]float32, n)
	}
	to = to[:n]
	at.Type.Decode(to, raw)
	return to
}

// Append adds tokens.
func (q *cachedSequence) Append(tokens ...int32) error {
	s := q.session
	if n := len(q.tokens) + len(tokens); n > s.Context() {
		return &ContextError{n, s.Context()}
	}
	for _, t := range tokens {
		if s.vocab > 0 && (t < 0 || int64(t) >= s.vocab) {
			return fmt.Errorf("token %d, the model knows 0 to %d; do the tokenizer and the model belong together?", t, s.vocab-1)
		}
	}
	if len(tokens) > 0 {
		q.tokens, q.ready, q.isDrawn = append(q.tokens, tokens...), false, false
	}
	return nil
}

// Truncate forgets all but the first n tokens. In a layer with a window the keys that those
// see may be gone already; then all of them are computed again.
func (q *cachedSequence) Truncate(n int) error {
	q.endBranches()
	if n < 0 || n > len(q.tokens) {
		return fmt.Errorf("truncating a text of %d tokens to %d", len(q.tokens), n)
	}
	q.tokens, q.ready, q.isDrawn, q.computed = q.tokens[:n], false, false, min(q.computed, n)
	for _, t := range q.session.tables {
		if !t.holds(q.computed, q.highest) {
			q.computed, q.highest = 0, -1
		}
	}
	for _, t := range q.session.tables {
		t.release(q.slot, q.computed)
	}
	return nil
}

// Fork begins another sequence with the same tokens. Both share their pages until one of
// them writes to a page, which is copied then.
func (q *cachedSequence) Fork() (Sequence, error) {
	f, err := q.session.open(nil)
	if err != nil {
		return nil, err
	}
	f.from(q)
	f.isDrawn, f.drawn = q.isDrawn, q.drawn
	if q.ready && q.Logits() != nil {
		f.ready, f.fetched, f.step, f.logits = true, true, q.step, slices.Clone(q.logits)
	}
	return f, nil
}

// from gives a new sequence the tokens and pages of another one.
func (q *cachedSequence) from(other *cachedSequence) {
	q.tokens, q.computed, q.highest = slices.Clone(other.tokens), other.computed, other.highest
	for _, t := range q.session.tables {
		t.share(other.slot, q.slot)
	}
}

// Close frees the slot and the pages.
func (q *cachedSequence) Close() error {
	s := q.session
	if s.slots[q.slot] != q {
		return nil
	}
	for _, t := range s.tables {
		t.release(q.slot, 0)
	}
	q.endBranches()
	if q.of == nil {
		s.closed++
	}
	q.leave()
	s.slots[q.slot], q.ready, q.tokens, q.computed = nil, false, nil, 0
	s.order = slices.DeleteFunc(s.order, func(other *cachedSequence) bool { return other == q })
	return nil
}
