package generate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"spillway/internal/stopwatch"
)

// BeamSearch keeps the Count most likely continuations and extends each by every token. Its
// results are those of transformers' beam search.
type BeamSearch struct {
	Count int
	// LengthPenalty is the power of the length by which the scores of ended texts are divided:
	// above 0 longer ones gain, below 0 shorter ones.
	LengthPenalty float64
	// EarlyStopping ends the search as soon as Count texts have ended, even if others may
	// become better.
	EarlyStopping bool
}

func (b BeamSearch) check(r *Request) error {
	s := r.Sampler
	switch {
	case b.Count < 1:
		return fmt.Errorf("%d beams; at least one is needed", b.Count)
	case r.Samples > b.Count:
		return fmt.Errorf("%d texts are wanted of %d beams; ask for at most as many as there are beams", r.Samples, b.Count)
	case s.Temperature != 0 || s.TopK != 0 || s.TopP != 0 || s.MinP != 0:
		return errors.New("beam search does not sample, so temperature, top-k, top-p and min-p have no effect; leave them out")
	case len(r.Stop) > 0:
		return errors.New("beam search ends texts with stop tokens only; leave the stop strings out")
	case r.Sequence != nil:
		return errors.New("beam search needs sequences of its own; do not give one")
	case math.IsNaN(b.LengthPenalty) || math.IsInf(b.LengthPenalty, 0):
		return fmt.Errorf("length penalty %v; it is a finite number", b.LengthPenalty)
	}
	return s.Check()
}

// beam is a text that is extended, or one that has ended.
type beam struct {
	q      Sequence // nil where it has ended
	picker *Picker
	score  float32 // sum of log-probabilities; of an ended one with the length penalty
	tokens []Token // that were added
}

// continuation is a beam with one more token.
type continuation struct {
	from  *beam
	index int // of the beam and the token together, which orders equals
	token int32
	score float32
	ends  bool
}

// search extends beams until no better text can come.
func (g *Generation) search(ctx context.Context, first Sequence, yield func(Piece) bool) (err error) {
	running := []*beam{{q: first}}
	defer func() {
		for _, b := range running {
			err = errors.Join(err, g.close(b.q))
		}
	}()
	if running[0].picker, err = g.r.Sampler.Picker(g.r.Prompt, 0); err != nil {
		return err
	}
	count := g.r.Beams.Count
	ended, hopeful := []*beam(nil), true
	for length := 1; ; length++ {
		list, err := g.continuations(running, length)
		if err != nil {
			return err
		}
		g.statistics.NewTokens += min(count, len(list))
		ended = g.collect(ended, list, length, hopeful)
		var next []continuation
		for _, c := range list {
			if !c.ends && len(next) < count {
				next = append(next, c)
			}
		}
		allEnded := len(ended) == count
		if len(next) > 0 {
			best := next[0].score / g.penalty(length)
			hopeful = hopeful && (!allEnded || best > ended[count-1].score)
		}
		if len(next) == 0 || !hopeful || allEnded && g.r.Beams.EarlyStopping {
			break
		}
		if running, err = g.extend(running, next); err != nil {
			return err
		}
		start := stopwatch.Now()
		if err := g.engine.Step(ctx); err != nil {
			return err
		}
		g.statistics.Decode += stopwatch.Since(start)
		g.statistics.decoded += len(running)
	}
	return g.showBeams(ended, yield)
}

// continuations are the most likely ones of all beams, the most likely first: enough of them
// that as many as there are beams go on, even if the others end.
func (g *Generation) continuations(running []*beam, length int) ([]continuation, error) {
	most := max(2, 1+len(g.r.StopTokens)) * g.r.Beams.Count
	var list []continuation
	for i, b := range running {
		scores, err := g.logScores(b)
		if err != nil {
			return nil, err
		}
		for t, s := range scores {
			c := continuation{from: b, index: i*len(scores) + t, token: int32(t), score: s + b.score}
			if len(list) == most && c.score <= list[most-1].score || math.IsInf(float64(s), -1) {
				continue
			}
			at, _ := slices.BinarySearchFunc(list, c, func(a, b continuation) int {
				return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.index, b.index))
			})
			list = slices.Insert(list, at, c)
			list = list[:min(len(list), most)]
		}
	}
	for i := range list {
		list[i].ends = length == g.room || slices.Contains(g.r.StopTokens, list[i].token)
	}
	return list, nil
}

// logScores are the log-probabilities of the tokens after a beam, with biases and penalties.
func (g *Generation) logScores(b *beam) ([]float32, error) {
	logits := b.q.Logits()
	z, err := logNormalizer(logits)
	if err != nil {
		return nil, err
	}
	scores := make([]float32, len(logits))
	for i, l := range logits {
		scores[i] = float32(float64(l) - z)
	}
	return b.picker.Process(scores)
}

// collect adds texts that have just ended to those that ended before, and leaves the best,
// the best first. Only continuations that are among the best as many as there are beams count.
func (g *Generation) collect(ended []*beam, list []continuation, length int, hopeful bool) []*beam {
	count := g.r.Beams.Count
	full := len(ended) == count && g.r.Beams.EarlyStopping
	for _, c := range list[:min(count, len(list))] {
		if c.ends && hopeful && !full {
			ended = append(ended, &beam{score: c.score / g.penalty(length), tokens: g.added(c)})
		}
	}
	slices.SortStableFunc(ended, func(a, b *beam) int { return cmp.Compare(b.score, a.score) })
	return ended[:min(len(ended), count)]
}

func (g *Generation) penalty(length int) float32 {
	return float32(math.Pow(float64(length), g.r.Beams.LengthPenalty))
}

// added are the tokens of a continuation.
func (g *Generation) added(c continuation) []Token {
	token := Token{ID: c.token}
	if g.r.Logprobs {
		token, _ = rated(c.token, c.from.q.Logits(), g.r.TopLogprobs) // its logits were good a moment ago
	}
	return append(slices.Clone(c.from.tokens), token)
}

// extend makes beams of continuations. A beam that goes on in several is forked, one that
// goes on in none is closed before that, so that there are never more than Count.
func (g *Generation) extend(running []*beam, next []continuation) ([]*beam, error) {
	extended := make([]*beam, len(next))
	for i, c := range next {
		extended[i] = &beam{score: c.score, tokens: g.added(c)}
	}
	open := []*beam{}
	used := map[*beam]bool{}
	for _, c := range next {
		used[c.from] = true
	}
	for _, b := range running {
		if used[b] {
			open = append(open, b)
		} else if err := g.close(b.q); err != nil {
			return open, err
		}
	}
	last := map[*beam]int{} // the continuation that takes a beam's own sequence
	for i, c := range next {
		last[c.from] = i
	}
	for i, c := range next {
		b := extended[i]
		if b.q, b.picker = c.from.q, c.from.picker; last[c.from] != i {
			q, err := c.from.q.Fork()
			if err != nil {
				return open, err
			}
			b.q, b.picker = q, c.from.picker.fork()
			open = append(open, b)
		}
	}
	for i, c := range next {
		extended[i].picker.Add(c.token)
		if err := extended[i].q.Append(c.token); err != nil {
			return extended, err
		}
	}
	return extended, nil
}

// showBeams yields the best texts, each as one piece.
func (g *Generation) showBeams(ended []*beam, yield func(Piece) bool) error {
	g.results = nil
	for i, b := range ended[:min(len(ended), g.r.Samples)] {
		r := Result{Tokens: b.tokens, End: Length, StopToken: -1, Score: float64(b.score)}
		if last := b.tokens[len(b.tokens)-1].ID; slices.Contains(g.r.StopTokens, last) {
			r.Tokens, r.End, r.StopToken = b.tokens[:len(b.tokens)-1], Stopped, last
		}
		if g.tokenizer != nil {
			var err error
			if r.Text, err = g.textOf(r.Tokens); err != nil {
				return err
			}
		}
		g.results = append(g.results, r)
		if !yield(Piece{Sample: i, Text: r.Text, Tokens: r.Tokens, End: r.End}) {
			return errNoReader
		}
	}
	return nil
}
