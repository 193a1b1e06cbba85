package generate

import (
	"context"
	"fmt"
	"math"
	"slices"
)

// Speculation guesses the next tokens of a text and has the engine compute all of them in one step.
// As long as a guess is the token that would have been picked, its step was saved; the first one that
// is not is taken back. Tokens are picked from the same logits with the same random numbers as without
// speculation, so the text is the same, greedy or not, wherever an engine gives a token the same
// logits whatever is computed with it: on a CPU, and on GPUs with exact results. Elsewhere logits
// differ by rounding, as they do when a prompt is cut otherwise.
type Speculation struct {
	// Drafter guesses.
	Drafter Drafter
	// Most is how many tokens are guessed at once, at most. The plan of the engine has steps for
	// as many (run.Generation.Drafts).
	Most int
	// Seconds is how long a step of so many rows takes, and DraftSeconds how long the drafter takes for
	// a token, by forecast: no more is guessed than pays. Nil: a step takes the same whatever
	// its rows.
	Seconds      func(rows int) float64
	DraftSeconds float64
}

// Drafter guesses how a text goes on.
type Drafter interface {
	// Draft is up to most tokens that may follow a text, which is never empty. The tokens of a text stay
	// as they are from call to call, but for those that were guessed wrong. The picker is a twin of the one
	// that will pick the tokens, and knows the text so far: who has logits of its own guesses best with it, since the same
	// random number mostly draws the same token from probabilities that are nearly the same.
	Draft(ctx context.Context, text []int32, most int, as *Picker) ([]int32, error)
	// Close frees what the drafter holds.
	Close() error
}

// Lookup guesses that a text goes on as it did before: after the latest place where the tokens that it
// ends with stood already, the longest such ending first. It needs no model, and is right where texts
// repeat themselves or their prompt.
type Lookup struct {
	// Longest and Shortest are how many tokens are looked for; zero is 4 and 2.
	Longest, Shortest int
}

// Draft looks the end of the text up in the text.
func (l Lookup) Draft(_ context.Context, text []int32, most int, _ *Picker) ([]int32, error) {
	longest, shortest := l.Longest, l.Shortest
	if longest == 0 {
		longest = 4
	}
	if shortest == 0 {
		shortest = 2
	}
	for n := min(longest, len(text)-1); n >= shortest && n > 0; n-- {
		end := text[len(text)-n:]
		for at := len(text) - n - 1; at >= 0; at-- {
			if slices.Equal(text[at:at+n], end) {
				follows := text[at+n:]
				return follows[:min(most, len(follows))], nil
			}
		}
	}
	return nil, nil
}

// Close does nothing.
func (Lookup) Close() error { return nil }

// pace decides how many tokens are guessed, from the share of guesses that were right so far. Guesses
// that were not computed count too: whether they were right shows as the text goes on.
type pace struct {
	of    *Speculation
	right float64 // share of guesses that were right, lately
}

// memory is the weight of what was seen before in the share of right guesses.
const memory = 0.9

func newPace(s *Speculation) *pace { return &pace{of: s, right: 0.7} }

// saw counts a guess.
func (p *pace) saw(right bool) {
	p.right *= memory
	if right {
		p.right += 1 - memory
	}
}

// length is the number of guesses with which tokens come fastest, up to most.
func (p *pace) length(most int) (best int) {
	most = min(most, p.of.Most)
	if p.of.Seconds == nil {
		return most
	}
	var rate float64
	tokens, chance := 0.0, 1.0
	for n := 0; n <= most; n++ {
		tokens += chance // that come of the step, on average
		chance *= p.right
		seconds := p.of.Seconds(n+1) + float64(n)*p.of.DraftSeconds
		if r := tokens / math.Max(seconds, 1e-12); r > rate*1.02 { // a forecast is not that exact
			rate, best = r, n
		}
	}
	return best
}

// guesses are the tokens of a writer that were guessed, and their logits.
type guesses struct {
	pace    *pace
	length  int     // of the text that is certain
	tokens  []int32 // guessed after it, and appended to the sequence
	logits  [][]float32
	at      int     // how many of them were right
	shadow  []int32 // guessed, but not computed: to see whether it would have been right
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
	// Guess appends guesses, and has the logits after every token that waits given to f.
	Guess(tokens []int32, f func(position int, logits []float32)) error
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
	if u == nil || u.logits == nil {
		return nil, false
	}
	return u.logits[u.at], true
}

// accepts says whether a token that was picked is the one that was guessed, so that the logits after it
// are there.
func (u *guesses) accepts(id int32) bool {
	u.length++
	if len(u.shadow) > 0 {
		u.pace.saw(u.shadow[0] == id)
		u.shadow = nil
	}
	if u.at == len(u.tokens) {
		return false
	}
	right := u.tokens[u.at] == id
	if u.pace.saw(right); right {
		u.at++
	}
	return right
}

// appendGuessing appends a token that was picked, with guesses of those after it.
func (g *Generation) appendGuessing(ctx context.Context, w *writer, id int32) error {
	u := w.guess
	if u == nil {
		return w.q.Append(id)
	}
	q := w.q.(guesser)
	if n := u.length - 1; n < w.q.Len() { // guesses that were wrong
		if err := w.q.Truncate(n); err != nil {
			return err
		}
	}
	u.tokens, u.logits, u.at = nil, nil, 0
	q.Each(nil)
	if err := w.q.Append(id); err != nil {
		return err
	}
	most := min(g.room-len(w.result.Tokens)-1, g.engine.Context()-w.q.Len()-1)
	wanted := u.pace.length(most)
	if u.rested++; wanted > 0 {
		u.rested = 0
	} else if u.pace.of.DraftSeconds > 0 && u.rested%restTokens != 0 { // looking would take time
		return nil
	}
	u.picker.follow(w.picker)
	guessed, err := u.drafter.Draft(ctx, w.q.Tokens(), min(max(wanted, 1), max(most, 0)), u.picker)
	if err != nil {
		return fmt.Errorf("guessing tokens: %w", err)
	}
	if wanted == 0 || len(guessed) == 0 {
		u.shadow = slices.Clone(guessed)
		return nil
	}
	u.tokens = slices.Clone(guessed)
	g.statistics.Guessed += len(u.tokens)
	first := w.q.Len() - 1
	u.logits = make([][]float32, len(u.tokens)+1)
	return q.Guess(u.tokens, func(position int, logits []float32) {
		if i := position - first; i >= 0 && i < len(u.logits) {
			u.logits[i] = append(u.logits[i][:0], logits...)
		}
	})
}

// ModelDrafter guesses with another model, or the same one quantized: the token that would be picked
// from its logits after the text, and so on. It keeps a sequence for each of the texts that it saw last.
type ModelDrafter struct {
	engine Engine
	texts  []Sequence // the one that was used last is last
}

// NewModelDrafter guesses with the model of an engine, which becomes the drafter's.
func NewModelDrafter(e Engine) *ModelDrafter { return &ModelDrafter{engine: e} }

// Draft computes what is new of the text, then token by token.
func (d *ModelDrafter) Draft(ctx context.Context, text []int32, most int, as *Picker) (guessed []int32, err error) {
	most = min(most, d.engine.Context()-len(text))
	if most <= 0 {
		return nil, nil
	}
	q, err := d.sequence(text)
	if err != nil {
		return nil, err
	}
	for {
		if err := d.engine.Step(ctx); err != nil {
			return nil, err
		}
		id, err := as.Pick(q.Logits(), q.Len())
		if err != nil {
			return guessed, nil // of numbers that this model cannot compute, nothing is guessed
		}
		if guessed = append(guessed, id); len(guessed) == most {
			return guessed, nil
		}
		as.Add(id)
		if err := q.Append(id); err != nil {
			return nil, err
		}
	}
}

// sequence is one that has the text, the one that has most of it already.
func (d *ModelDrafter) sequence(text []int32) (q Sequence, err error) {
	best, at := -1, -1
	for i, s := range d.texts {
		n := 0
		for have := s.Tokens(); n < min(len(have), len(text)) && have[n] == text[n]; n++ {
		}
		if n > best {
			best, at = n, i
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
	_, err = Extend(q, text)
	return q, err
}

// Close closes the engine.
func (d *ModelDrafter) Close() error { return d.engine.Close() }
