package generate

import "slices"

// guessing is what of a sequence is guessed.
type guessing struct {
	guesses int // of its last tokens, those that were guessed and that no earlier branch has
	// branches go on otherwise than the sequence. They share its pages, and are computed in the same steps.
	branches []*cachedSequence
	of       *cachedSequence // whose branch it is; nil for none
}

// branch begins a branch of a sequence, with the tokens of it or of another one of its branches: a fork that takes
// none of the streams, and that may differ in as many of its last tokens as the plan has pages for. It ends with its sequence.
func (q *cachedSequence) branch(from *cachedSequence) (*cachedSequence, error) {
	b, err := q.session.open(q)
	if err != nil {
		return nil, err
	}
	b.from(from)
	q.branches = append(q.branches, b)
	return b, nil
}

// swap exchanges the texts of two sequences.
func (q *cachedSequence) swap(other *cachedSequence) {
	slots := q.session.slots
	slots[q.slot], slots[other.slot] = other, q
	q.slot, other.slot = other.slot, q.slot
	q.tokens, other.tokens = other.tokens, q.tokens
	q.computed, other.computed = other.computed, q.computed
	q.highest, other.highest = other.highest, q.highest
	q.ready, other.ready, q.isDrawn, other.isDrawn = false, false, false, false
}

// Guess appends guesses, each of some branches to the text so far, and has the logits after every token that waits
// given to f, with the number of its branch. They are computed in as few steps as their rows need.
func (q *cachedSequence) Guess(branches [][]int32, f func(branch, position int, logits []float32)) error {
	q.endBranches()
	for range branches[1:] {
		if _, err := q.branch(q); err != nil {
			q.endBranches()
			return err
		}
	}
	for i, tokens := range branches {
		b := q
		if i > 0 {
			b = q.branches[i-1]
		}
		if err := b.Append(tokens...); err != nil {
			q.endBranches()
			return err
		}
		b.each, b.guesses = func(position int, logits []float32) { f(i, position, logits) }, len(tokens)
		for _, earlier := range branches[:i] {
			b.guesses = min(b.guesses, len(tokens)-common(tokens, earlier))
		}
	}
	return nil
}

// Keep makes the first n tokens of a branch the text, 0 being that of the sequence itself, and ends all branches.
func (q *cachedSequence) Keep(branch, n int) error {
	if branch > 0 {
		q.swap(q.branches[branch-1])
	}
	q.Each(nil)
	if n == len(q.tokens) {
		return nil
	}
	return q.Truncate(n)
}

// endBranches closes the branches.
func (q *cachedSequence) endBranches() {
	for len(q.branches) > 0 {
		q.branches[len(q.branches)-1].Close()
	}
}

// leave takes a branch from its sequence.
func (q *cachedSequence) leave() {
	if q.of != nil {
		q.of.branches = slices.DeleteFunc(q.of.branches, func(b *cachedSequence) bool { return b == q })
		q.of = nil
	}
}

// common is how many tokens two texts both begin with.
func common(a, b []int32) (n int) {
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}
