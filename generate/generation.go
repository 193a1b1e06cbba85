package generate

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"spillway/internal/stopwatch"
	"spillway/tokenizer"
)

// Generation carries out a request.
type Generation struct {
	engine     Engine
	tokenizer  *tokenizer.Tokenizer
	r          Request
	room       int // tokens that may be added
	statistics Statistics
	prompt     []Token // with log-probabilities, where they were asked for
	results    []Result
}

// New checks a request. Without a tokenizer (nil) pieces have tokens and no text.
func New(e Engine, t *tokenizer.Tokenizer, r Request) (*Generation, error) {
	if err := r.check(e, t); err != nil {
		return nil, err
	}
	g := &Generation{engine: e, tokenizer: t, r: r, room: e.Context() - len(r.Prompt)}
	if r.MaxNewTokens > 0 {
		g.room = r.MaxNewTokens
	}
	g.statistics.Prompts, g.statistics.Texts, g.statistics.PromptTokens = 1, r.Samples, len(r.Prompt)
	if r.Beams != nil {
		g.statistics.Texts = r.Beams.Count
	}
	return g, nil
}

// Statistics are those of what was done so far.
func (g *Generation) Statistics() Statistics { return g.statistics }

// Prompt is the prompt with its log-probabilities, once the first piece has come; nil where
// they were not asked for.
func (g *Generation) Prompt() []Token { return g.prompt }

// Results are the continuations, complete when All has ended. Those of beams are in the order
// of their scores.
func (g *Generation) Results() []Result { return g.results }

// All yields pieces as they come: those of several samples take turns, those of beams come
// at the end. An error comes last; when ctx is done it is that of ctx, and Results have what
// there was by then. It is called once.
func (g *Generation) All(ctx context.Context) iter.Seq2[Piece, error] {
	return func(yield func(Piece, error) bool) {
		err := g.all(ctx, func(p Piece) bool { return yield(p, nil) })
		if err != nil && !errors.Is(err, errNoReader) {
			yield(Piece{}, err)
		}
	}
}

// errNoReader says that nobody wants more pieces.
var errNoReader = errors.New("the reader of the pieces has left")

func (g *Generation) all(ctx context.Context, yield func(Piece) bool) (err error) {
	first, err := g.begin(ctx)
	if err != nil {
		return err
	}
	if g.r.Beams != nil {
		return g.search(ctx, first, yield)
	}
	return g.sample(ctx, first, yield)
}

// begin computes the prompt.
func (g *Generation) begin(ctx context.Context) (q Sequence, err error) {
	start := stopwatch.Now()
	defer func() { g.statistics.Prefill = stopwatch.Since(start) }()
	prompt := g.r.Prompt
	if g.r.PromptLogprobs {
		return g.beginSlowly(ctx, prompt)
	}
	if q = g.r.Sequence; q != nil {
		g.statistics.ReusedTokens, err = Extend(q, prompt)
	} else {
		q, err = g.engine.Add(prompt)
	}
	if err != nil {
		return nil, err
	}
	if d, ok := q.(Drawer); ok {
		d.Draw(nil) // a sequence that was continued before may have asked
	}
	if each, ok := q.(eacher); ok {
		each.Each(nil) // likewise
	}
	return q, g.stepUntilReady(ctx, q)
}

// eacher is a sequence that gives the logits after every token of a prompt, however many are
// computed in a step.
type eacher interface {
	Each(f func(position int, logits []float32))
}

// beginSlowly computes the prompt with the logits of each place: in chunks where the engine gives
// those of several places at once, else token by token.
func (g *Generation) beginSlowly(ctx context.Context, prompt []int32) (Sequence, error) {
	q, err := g.engine.Add(prompt[:1])
	if err != nil {
		return nil, err
	}
	g.prompt = []Token{{ID: prompt[0]}}
	if each, ok := q.(eacher); ok {
		var failed error
		each.Each(func(position int, logits []float32) {
			if position+1 < len(prompt) && failed == nil {
				var t Token
				t, failed = rated(prompt[position+1], logits, g.r.TopLogprobs)
				g.prompt = append(g.prompt, t)
			}
		})
		if err := q.Append(prompt[1:]...); err != nil {
			return nil, errors.Join(err, q.Close())
		}
		if err := g.stepUntilReady(ctx, q); err != nil {
			return nil, err
		}
		if each.Each(nil); failed != nil {
			return nil, errors.Join(failed, q.Close())
		}
		return q, nil
	}
	for _, next := range prompt[1:] {
		if err := g.stepUntilReady(ctx, q); err != nil {
			return nil, err
		}
		t, err := rated(next, q.Logits(), g.r.TopLogprobs)
		if err != nil {
			return nil, errors.Join(err, q.Close())
		}
		g.prompt = append(g.prompt, t)
		if err := q.Append(next); err != nil {
			return nil, errors.Join(err, q.Close())
		}
	}
	return q, g.stepUntilReady(ctx, q)
}

// stepUntilReady computes until a sequence has logits, and closes it where that fails.
func (g *Generation) stepUntilReady(ctx context.Context, q Sequence) error {
	for !q.Ready() {
		if err := g.engine.Step(ctx); err != nil {
			return errors.Join(err, g.close(q))
		}
	}
	return nil
}

// close closes a sequence, unless it is the caller's.
func (g *Generation) close(q Sequence) error {
	if q == g.r.Sequence {
		return nil
	}
	return q.Close()
}

// writer writes one continuation.
type writer struct {
	q      Sequence
	picker *Picker
	text   *textStream // nil without a tokenizer
	stops  stopFinder
	result *Result
	shown  int      // tokens of the result that pieces had
	guess  *guesses // nil without speculation
}

// sample writes the continuations token by token, each in its sequence.
func (g *Generation) sample(ctx context.Context, first Sequence, yield func(Piece) bool) (err error) {
	writers, err := g.writers(first)
	defer func() {
		for _, w := range writers {
			if w.guess != nil {
				w.q.(guesser).Each(nil) // no branch stays
			}
			err = errors.Join(err, g.close(w.q))
		}
	}()
	if err != nil {
		return err
	}
	for start := stopwatch.Now(); ; start = stopwatch.Now() {
		going, saved := 0, 0 // saved: tokens that were there without a step of their own
		for i, w := range writers {
			if w.result.End != "" {
				continue
			}
			before := g.statistics.NewTokens
			if err := g.advance(ctx, i, w, yield); err != nil {
				if !errors.Is(err, errNoReader) { // guessing takes time too, so that ctx may end it
					err = errors.Join(err, g.abandon(ctx, writers, yield))
				}
				return err
			}
			if w.result.End == "" {
				going++
			}
			saved += max(g.statistics.NewTokens-before-1, 0)
		}
		if g.statistics.decoded += saved; going == 0 {
			return nil
		}
		if err := g.engine.Step(ctx); err != nil {
			return errors.Join(err, g.abandon(ctx, writers, yield))
		}
		g.statistics.Decode += stopwatch.Since(start)
		g.statistics.decoded += going
	}
}

// writers makes one for each continuation, all after the same prompt.
func (g *Generation) writers(first Sequence) (list []*writer, err error) {
	g.results = make([]Result, g.r.Samples)
	for i := range g.results {
		g.results[i].StopToken = -1
		w := &writer{q: first, result: &g.results[i], stops: stopFinder{stops: g.r.Stop}}
		if i > 0 {
			if w.q, err = first.Fork(); err != nil {
				return list, err
			}
		}
		list = append(list, w)
		if w.picker, err = g.r.Sampler.Picker(g.r.Prompt, uint32(i)); err != nil {
			return list, err
		}
		if w.text, err = g.stream(); err != nil {
			return list, err
		}
		if d, ok := w.q.(Drawer); ok {
			as := g.r.Sampler.Drawing(uint32(i))
			if g.r.Logprobs {
				as = nil
			}
			d.Draw(as)
		}
		if err := g.speculates(w); err != nil {
			return list, err
		}
	}
	if q, ok := first.(*cachedSequence); ok {
		q.shared(len(list) - 1)
	}
	return list, nil
}

// contextTokens is how many tokens of the prompt are looked at for the text after it: a
// space at the start of a word is dropped where a text begins, and nowhere else.
const contextTokens = 8

// textStream decodes the tokens of a text. Models may have more ids than their tokenizers, which round vocabularies up for
// speed: such an id writes nothing, as in transformers.
type textStream struct {
	*tokenizer.Stream
	tokenizer *tokenizer.Tokenizer
}

// has says whether the tokenizer has a text for an id.
func (s *textStream) has(id int32) bool {
	_, known := s.tokenizer.Token(id)
	return known
}

// Push is that of tokenizer.Stream, for all ids of the model.
func (s *textStream) Push(id int32) (string, error) {
	if !s.has(id) {
		return "", nil
	}
	return s.Stream.Push(id)
}

// stream decodes what comes after the prompt; nil without a tokenizer.
func (g *Generation) stream() (*textStream, error) {
	if g.tokenizer == nil {
		return nil, nil
	}
	s := &textStream{g.tokenizer.Stream(!g.r.KeepSpecial), g.tokenizer}
	for _, id := range g.r.Prompt[max(len(g.r.Prompt)-contextTokens, 0):] {
		if _, err := s.Push(id); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// textOf is the text of tokens after the prompt.
func (g *Generation) textOf(tokens []Token) (text string, err error) {
	s, err := g.stream()
	if err != nil {
		return "", err
	}
	for _, t := range tokens {
		more, err := s.Push(t.ID)
		if err != nil {
			return "", err
		}
		text += more
	}
	rest, err := s.Flush()
	return text + rest, err
}

// advance picks the next token of a continuation, and more as long as they were guessed right.
func (g *Generation) advance(ctx context.Context, i int, w *writer, yield func(Piece) bool) error {
	right := 0
	if w.guess != nil && w.guess.tree != nil && len(w.guess.tree.leaves) > 0 {
		defer func() { w.q.(guesser).Guessed(right) }()
	}
	for {
		id, err := g.next(w)
		if err != nil {
			return err
		}
		text := ""
		if slices.Contains(g.r.StopTokens, id.ID) {
			w.result.End, w.result.StopToken = Stopped, id.ID
		} else if text, err = w.add(id); err != nil {
			return err
		} else if w.text != nil && !w.text.has(id.ID) {
			g.statistics.Unwritten++
		}
		if w.result.End == "" && len(w.result.Tokens) == g.room {
			w.result.End = Length
		}
		if w.result.End != "" {
			if w.guess != nil {
				if err := w.guess.settle(w.q.(guesser), w.guess.length); err != nil {
					return err
				}
			}
			rest, err := w.flush()
			if err != nil {
				return err
			}
			return w.show(i, text+rest, yield)
		}
		w.picker.Add(id.ID)
		guessed := w.guess != nil && w.guess.accepts(id.ID)
		if guessed {
			g.statistics.Accepted++
			right++
		} else if err := g.appendGuessing(ctx, w, id.ID); err != nil {
			return err
		}
		if err := w.show(i, text, yield); err != nil || !guessed {
			return err
		}
	}
}

// next picks a token.
func (g *Generation) next(w *writer) (token Token, err error) {
	id, logits, err := w.pick()
	if err != nil {
		return token, fmt.Errorf("picking token %d: %w", w.length(), err)
	}
	g.statistics.NewTokens++
	if token.ID = id; g.r.Logprobs {
		return rated(id, logits, g.r.TopLogprobs)
	}
	return token, nil
}

// length is how many tokens of the text are certain.
func (w *writer) length() int {
	if w.guess != nil {
		return w.guess.length
	}
	return w.q.Len()
}

// pick gives the next token: the one that was drawn on the device, or one from the logits.
func (w *writer) pick() (id int32, logits []float32, err error) {
	if logits, ok := w.guess.verified(); ok {
		id, err = w.picker.Pick(logits, w.length())
		return id, logits, err
	}
	if d, ok := w.q.(Drawer); ok {
		if id, ok := d.Drawn(); ok {
			if id < 0 {
				err = errors.New("its logits are NaN, infinite or all -Inf; the model's weights are damaged, or its numbers overflow: try --dtype f32")
			}
			return id, nil, err
		}
	}
	logits = w.q.Logits()
	id, err = w.picker.Pick(logits, w.length())
	return id, logits, err
}

// add adds a token to a text and returns what of the text is certain by now.
func (w *writer) add(token Token) (text string, err error) {
	w.result.Tokens = append(w.result.Tokens, token)
	if w.text == nil {
		return "", nil
	}
	if text, err = w.text.Push(token.ID); err != nil {
		return "", fmt.Errorf("decoding token %d: %w", token.ID, err)
	}
	text, w.result.StopString = w.stops.push(text)
	if w.result.StopString != "" {
		w.result.End = Stopped
	}
	return text, nil
}

// flush returns what was held back, when a text ends.
func (w *writer) flush() (string, error) {
	if w.text == nil || w.result.StopString != "" {
		return "", nil
	}
	rest, err := w.text.Flush()
	if err != nil {
		return "", err
	}
	text, stop := w.stops.push(rest)
	if stop != "" {
		w.result.End, w.result.StopString = Stopped, stop
		return text, nil
	}
	return text + w.stops.flush(), nil
}

// show yields a piece, if there is something to show.
func (w *writer) show(i int, text string, yield func(Piece) bool) error {
	w.result.Text += text
	if text == "" && w.result.End == "" && w.text != nil {
		return nil
	}
	tokens := len(w.result.Tokens)
	piece := Piece{Sample: i, Text: text, Tokens: w.result.Tokens[w.shown:tokens:tokens], End: w.result.End} // the result only grows
	w.shown = tokens
	if !yield(piece) {
		return errNoReader
	}
	return nil
}

// abandon ends all texts that still go on, when the context is done.
func (g *Generation) abandon(ctx context.Context, writers []*writer, yield func(Piece) bool) error {
	if ctx.Err() == nil {
		return nil
	}
	for i, w := range writers {
		if w.result.End != "" {
			continue
		}
		w.result.End = Cancelled
		text, err := w.flush()
		if err == nil {
			err = w.show(i, text, yield)
		}
		if err != nil && !errors.Is(err, errNoReader) {
			return err
		}
	}
	return nil
}
