package generate

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
)

// Speculation guesses the next tokens of a text and has the engine compute all of them in one step: one
// continuation, or a tree of several, each branch of which is a fork of the sequence.
// As long as a guess is the token that would have been picked, its step was saved; the branch with most of them
// becomes the text, and the others are taken back. Tokens are picked from the same logits with the same random numbers as without
// speculation, so the text is the same, greedy or not, wherever an engine gives a token the same
// logits whatever is computed with it: on a CPU, and on GPUs with exact results. Elsewhere logits
// differ by rounding, as they do when a prompt is cut otherwise.
type Speculation struct {
	// Drafter guesses.
	Drafter Drafter
	// Most is how many tokens are guessed after each other, at most. The plan of the engine has steps for
	// as many (run.Generation.Drafts).
	Most int
	// Branches is how many continuations are guessed next to the first, at most, and those of the engine's
	// plan (run.Generation.Branches).
	Branches int
	// Seconds is how long a step of so many rows takes, DraftSeconds how long the drafter takes for what
	// follows so many continuations, and BranchSeconds what a branch takes besides its rows, by forecast:
	// no more is guessed than pays. Nil: a step takes the same whatever its rows, guessing takes no time.
	Seconds       func(rows int) float64
	DraftSeconds  func(continuations int) float64
	BranchSeconds float64
}

// Drafter guesses how a text goes on.
type Drafter interface {
	// Follow is what may come after each of some continuations of a text, which is never empty: at most so many tokens for each, the
	// most likely first, none where it does not know. The first call for a text has one continuation, of no tokens; those
	// of the next calls are continuations of calls before with a token that was guessed. The tokens of a text stay
	// as they are from text to text, but for those that were guessed wrong. The picker is a twin of the one
	// that will pick the tokens, and knows the text so far: who has logits of its own guesses best with it, since the same
	// random number mostly draws the same token from probabilities that are nearly the same.
	Follow(ctx context.Context, text []int32, after [][]int32, most int, as *Picker) ([][]Candidate, error)
	// Close frees what the drafter holds.
	Close() error
}

// Candidate is a token that may be next.
type Candidate struct {
	Token int32
	// Chance is what the drafter thinks of it, between 0 and 1. How often it is right with that is seen as texts go on.
	Chance float64
}

// Lookup guesses that a text goes on as it did before: after the latest places where the tokens that it
// ends with stood already, the longest such ending first. It needs no model, and is right where texts
// repeat themselves or their prompt.
type Lookup struct {
	// Longest and Shortest are how many tokens are looked for; zero is 4 and 2.
	Longest, Shortest int
}

// Follow looks the ends of the continuations up in the text.
func (l Lookup) Follow(_ context.Context, text []int32, after [][]int32, most int, _ *Picker) (list [][]Candidate, err error) {
	whole := slices.Clone(text)
	for _, path := range after {
		whole = append(whole[:len(text)], path...)
		list = append(list, l.follow(whole, most))
	}
	return list, nil
}

// follow looks the end of a text up in it.
func (l Lookup) follow(text []int32, most int) (found []Candidate) {
	longest, shortest := cmp.Or(l.Longest, 4), cmp.Or(l.Shortest, 2)
	for n := min(longest, len(text)-1); n >= shortest && n > 0; n-- {
		end := text[len(text)-n:]
		for at := len(text) - n - 1; at >= 0; at-- {
			if text[at+n-1] != end[n-1] || !slices.Equal(text[at:at+n], end) {
				continue
			}
			next := text[at+n]
			if slices.ContainsFunc(found, func(c Candidate) bool { return c.Token == next }) {
				continue
			}
			chance := float64(n) / float64(longest+1) / math.Pow(4, float64(len(found)))
			if found = append(found, Candidate{next, chance}); len(found) >= most {
				return found
			}
		}
	}
	return found
}

// Close does nothing.
func (Lookup) Close() error { return nil }

// guesses are the guessed tokens of a writer, and their logits.
type guesses struct {
	pace    *pace
	length  int   // of the text that is certain
	tree    *tree // guessed after it; nil for none
	at      int   // the node up to which it was right
	logits  [][][]float32
	first   int // position of the token before the tree
	drafter Drafter
	picker  *Picker // a twin of the writer's, for the drafter
	rested  int     // tokens since something was guessed
}

// restTokens is after how many tokens a drafter that takes time is asked again, once guessing did not
// pay.
const restTokens = 32

// guesser is a sequence whose next tokens can be guessed.
type guesser interface {
	eacher
	// Guess appends guesses, those of several branches to the same text, and has the logits after every token that waits given to f.
	Guess(branches [][]int32, f func(branch, position int, logits []float32)) error
	// Keep makes the first n tokens of a branch the text.
	Keep(branch, n int) error
	// Guessed says how many of them were right, once the step with them was made.
	Guessed(right int)
}

// speculates prepares a writer.
func (g *Generation) speculates(w *writer) error {
	s := g.r.Speculation
	if s == nil {
		return nil
	}
	if _, ok := w.q.(guesser); !ok {
		return fmt.Errorf("guessing tokens with an engine that gives no logits of several tokens at once (%T); use a session", w.q)
	}
	w.guess = &guesses{pace: newPace(s), length: w.q.Len(), drafter: s.Drafter, picker: w.picker.fork()}
	return nil
}

// verified are the logits of the next token where it was computed with guesses before it.
func (u *guesses) verified() ([]float32, bool) {
	if u == nil || u.tree == nil || len(u.tree.leaves) == 0 {
		return nil, false
	}
	n := u.tree.nodes[u.at]
	return u.logits[n.branch][n.depth], true
}

// accepts says whether a token that was picked is one that was guessed and computed, so that the logits after it
// are there.
func (u *guesses) accepts(id int32) bool {
	u.length++
	if u.tree == nil {
		return false
	}
	u.pace.saw(u.tree, u.at, id)
	next := u.tree.child(u.at, id)
	if next < 0 || u.tree.nodes[next].branch < 0 {
		return false
	}
	u.at = next
	return true
}

// settle makes what was guessed right the text: its first n tokens. Nothing is guessed after it.
func (u *guesses) settle(q guesser, n int) error {
	if u.tree == nil || len(u.tree.leaves) == 0 {
		u.tree = nil
		return nil
	}
	branch := u.tree.nodes[u.at].branch
	u.tree, u.at = nil, 0
	return q.Keep(branch, n)
}

// appendGuessing appends a token that was picked, with guesses of those after it.
func (g *Generation) appendGuessing(ctx context.Context, w *writer, id int32) error {
	u := w.guess
	if u == nil {
		return w.q.Append(id)
	}
	q := w.q.(guesser)
	if err := u.settle(q, u.length-1); err != nil {
		return err
	}
	q.Each(nil)
	if err := w.q.Append(id); err != nil {
		return err
	}
	most := min(g.room-len(w.result.Tokens)-1, g.engine.Context()-w.q.Len()-1, u.pace.of.Most)
	u.picker.follow(w.picker)
	if err := u.grow(ctx, w.q.Tokens(), most); err != nil {
		return fmt.Errorf("guessing tokens: %w", err)
	}
	if u.tree == nil || len(u.tree.leaves) == 0 {
		return nil
	}
	g.statistics.Guessed += u.tree.computed()
	g.statistics.Passes++
	g.statistics.Branches += len(u.tree.leaves)
	u.first = w.q.Len() - 1
	branches := u.tree.branches()
	u.logits = slices.Grow(u.logits[:0], len(branches))[:len(branches)]
	for i, path := range branches {
		u.logits[i] = slices.Grow(u.logits[i][:0], len(path)+1)[:len(path)+1]
	}
	return q.Guess(branches, func(branch, position int, logits []float32) {
		if at := position - u.first; at >= 0 && at < len(u.logits[branch]) {
			u.logits[branch][at] = append(u.logits[branch][at][:0], logits...)
		}
	})
}

// grow guesses a tree after a text, no deeper than most tokens, and chooses what of it is computed. Where guessing does not pay it looks
// now and then, one token ahead, whether it would be right by now.
func (u *guesses) grow(ctx context.Context, text []int32, most int) error {
	t, p, drafted := newTree(), u.pace, 0.0
	if most < 1 {
		return nil
	}
	u.tree, u.at = t, 0
	front := p.front(t, []int{0}, most, 0)
	pays := len(front) > 0
	if u.rested++; pays {
		u.rested = 0
	} else if p.of.DraftSeconds != nil && u.rested%restTokens != 0 { // looking would take time
		return nil
	} else {
		front = []int{0}
	}
	for len(front) > 0 {
		paths := make([][]int32, len(front))
		for i, n := range front {
			paths[i] = t.path(n)
		}
		list, err := u.drafter.Follow(ctx, text, paths, 1+p.of.Branches, u.picker)
		if err != nil || !pays && len(list) == 0 {
			return err
		}
		drafted += p.draft(len(front))
		first := len(t.nodes)
		for i, candidates := range list {
			p.add(t, front[i], candidates)
		}
		if !pays || len(t.nodes) == first || t.nodes[first].depth == most {
			break
		}
		front = front[:0]
		for n := first; n < len(t.nodes); n++ {
			front = append(front, n)
		}
		front = p.front(t, front, most, drafted)
	}
	if !pays {
		return nil
	}
	t.leaves = p.choose(t, drafted).leaves
	for i, leaf := range t.leaves {
		for n := leaf; n >= 0 && t.nodes[n].branch < 0; n = t.nodes[n].parent {
			t.nodes[n].branch = i
		}
	}
	return nil
}

// ModelDrafter guesses with another model, or the same one quantized: the tokens that would most probably be picked
// from logits like its own after the text, and so on. It keeps a sequence for each of the texts that it saw last.
type ModelDrafter struct {
	engine Engine
	texts  []Sequence // the one that was used last is last
}

// NewModelDrafter guesses with the model of an engine, which becomes the drafter's. Continuations of a text next to the
// first need branches of its plan (run.Generation.Branches).
func NewModelDrafter(e Engine) *ModelDrafter { return &ModelDrafter{engine: e} }

// Follow computes what is new of the text, or a token more of each continuation, in one step.
func (d *ModelDrafter) Follow(ctx context.Context, text []int32, after [][]int32, most int, as *Picker) ([][]Candidate, error) {
	if len(text)+len(after[0]) > d.engine.Context() {
		return nil, nil
	}
	live, err := d.follow(text, after)
	if err != nil {
		return nil, err
	}
	if err := d.engine.Step(ctx); err != nil {
		return nil, err
	}
	list := make([][]Candidate, len(after))
	for i, q := range live {
		if q == nil {
			continue
		}
		picker := as
		if as.counts() && len(after[i]) > 0 {
			picker = as.fork()
			for _, id := range after[i] {
				picker.Add(id)
			}
		}
		if list[i], err = picker.Candidates(q.Logits(), q.Len(), most); err != nil {
			list[i] = nil // of numbers that this model cannot compute, nothing is guessed
		}
	}
	return list, nil
}

// follow are sequences that have the continuations; nil for those that there is no branch for.
func (d *ModelDrafter) follow(text []int32, after [][]int32) ([]Sequence, error) {
	if len(after[0]) == 0 {
		q, err := d.sequence(text)
		return []Sequence{q}, err
	}
	list := make([]Sequence, len(after))
	trunk := d.texts[len(d.texts)-1]
	q, ok := trunk.(*cachedSequence)
	if !ok { // an engine without branches
		list[0] = trunk
		if slices.Equal(trunk.Tokens()[len(text):], after[0][:len(after[0])-1]) {
			return list, trunk.Append(after[0][len(after[0])-1])
		}
		_, err := Extend(trunk, slices.Concat(text, after[0]))
		return list, err
	}
	have := q.having(text, after)
	for i, b := range have {
		if b == nil {
			continue
		}
		list[i] = b
		if err := b.Append(after[i][len(after[i])-1]); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// having are the sequence and branches of it, one for each continuation of a text, with all of its tokens but the last; nil for those
// that there is no branch for. Branches that no continuation needs end.
func (q *cachedSequence) having(text []int32, after [][]int32) []*cachedSequence {
	live := append([]*cachedSequence{q}, q.branches...)
	parents, needed := make([]*cachedSequence, len(after)), map[*cachedSequence]bool{}
	for i, path := range after {
		for _, b := range live {
			if len(b.tokens) == len(text)+len(path)-1 && slices.Equal(b.tokens[len(text):], path[:len(path)-1]) {
				parents[i], needed[b] = b, true
				break
			}
		}
	}
	for _, b := range live[1:] {
		switch {
		case needed[b] && !needed[q]:
			q.swap(b)
			for i := range parents {
				if parents[i] == b {
					parents[i] = q
				}
			}
			needed[q] = true
			b.Close()
		case !needed[b]:
			b.Close()
		}
	}
	list, taken := make([]*cachedSequence, len(after)), map[*cachedSequence]bool{}
	for i, b := range parents {
		if b != nil && taken[b] {
			b, _ = q.branch(b)
		}
		if list[i] = b; b != nil {
			taken[b] = true
		}
	}
	return list
}

// sequence is one that has the text, the one that has most of it already.
func (d *ModelDrafter) sequence(text []int32) (q Sequence, err error) {
	best, at, branch := -1, -1, 0
	for i, s := range d.texts {
		if n := common(s.Tokens(), text); n > best {
			best, at, branch = n, i, 0
		}
		if s, ok := s.(*cachedSequence); ok {
			for k, b := range s.branches {
				if n := common(b.tokens, text); n > best {
					best, at, branch = n, i, k+1
				}
			}
		}
	}
	if free := len(d.texts) < d.engine.Streams(); at < 0 || best < len(text)/2 && free {
		if !free {
			at = 0 // that was not used for longest
		} else {
			if q, err = d.engine.Add(text); err == nil {
				d.texts = append(d.texts, q)
			}
			return q, err
		}
	}
	q = d.texts[at]
	d.texts = append(slices.Delete(d.texts, at, at+1), q)
	if s, ok := q.(*cachedSequence); ok {
		if err := s.Keep(branch, min(best, len(text)-1)); err != nil {
			return nil, err
		}
	}
	_, err = Extend(q, text)
	return q, err
}

// Close closes the engine.
func (d *ModelDrafter) Close() error { return d.engine.Close() }
