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

// Batch carries out many requests: as many at once as the engine has streams for, the next as
// soon as one ends. A text does not depend on the others: its random numbers are those of its
// own seed, sample and position.
type Batch struct {
	engine     Engine
	list       []*Generation
	running    []*running
	begun      int // requests that were added to the engine
	statistics Statistics
}

// BatchPiece is a piece of one of the requests.
type BatchPiece struct {
	Request int
	Piece
}

// running is a request in the engine.
type running struct {
	*Generation
	request int
	first   Sequence
	writers []*writer // nil while the prompt is computed
}

// stepper is an engine that computes one step of its plan at a time, so that new requests may
// join in between.
type stepper interface {
	Advance(ctx context.Context) (more bool, err error)
}

// NewBatch checks requests. Beams, sequences of the caller and log-probabilities of prompts are
// for one request alone.
func NewBatch(e Engine, t *tokenizer.Tokenizer, requests []Request) (*Batch, error) {
	b := &Batch{engine: e}
	for i, r := range requests {
		g, err := New(e, t, r)
		if err == nil && (r.Beams != nil || r.Sequence != nil || r.PromptLogprobs) {
			err = errors.New("beams, a sequence of the caller's and log-probabilities of the prompt are for one request alone; use New")
		}
		if err != nil {
			return nil, fmt.Errorf("prompt %d: %w", i+1, err)
		}
		b.list = append(b.list, g)
		b.statistics.Prompts++
		b.statistics.Texts += g.statistics.Texts
		b.statistics.PromptTokens += len(r.Prompt)
	}
	return b, nil
}

// Results are the continuations of a request, complete when a piece of each said so.
func (b *Batch) Results(request int) []Result { return b.list[request].Results() }

// Forget lets go of the prompt and the results of a request whose texts have all ended, for those who have had its pieces: however
// many prompts there are, only those that are computed at once take memory then.
func (b *Batch) Forget(request int) {
	g := b.list[request]
	if len(g.results) > 0 && !slices.ContainsFunc(g.results, func(r Result) bool { return r.End == "" }) {
		g.results, g.prompt, g.r.Prompt = nil, nil, nil
	}
}

// Statistics are those of all requests. Steps that compute a part of a prompt count as prefill,
// whatever else they compute, and decode is what the others do.
func (b *Batch) Statistics() Statistics {
	s := b.statistics
	for _, g := range b.list {
		s.NewTokens, s.Unwritten = s.NewTokens+g.statistics.NewTokens, s.Unwritten+g.statistics.Unwritten
		s.Guessed, s.Accepted = s.Guessed+g.statistics.Guessed, s.Accepted+g.statistics.Accepted
		s.Passes, s.Branches = s.Passes+g.statistics.Passes, s.Branches+g.statistics.Branches
	}
	return s
}

// All yields pieces as they come, those of all requests in turns. An error comes last; when ctx
// is done it is that of ctx, and Results have what there was by then. It is called once.
func (b *Batch) All(ctx context.Context) iter.Seq2[BatchPiece, error] {
	return func(yield func(BatchPiece, error) bool) {
		err := b.all(ctx, func(p BatchPiece) bool { return yield(p, nil) })
		if err != nil && !errors.Is(err, errNoReader) {
			yield(BatchPiece{}, err)
		}
	}
}

func (b *Batch) all(ctx context.Context, yield func(BatchPiece) bool) (err error) {
	defer func() {
		for _, r := range b.running {
			err = errors.Join(err, r.close())
		}
		b.running = nil
	}()
	for {
		if err := b.admit(); err != nil {
			return err
		}
		if len(b.running) == 0 {
			return nil
		}
		start, prompts, tokens, accepted := stopwatch.Now(), b.prompts(), b.pending(), b.accepted()
		if err := b.step(ctx); err != nil {
			for _, r := range b.running {
				err = errors.Join(err, r.abandon(ctx, r.writers, func(p Piece) bool { return yield(BatchPiece{r.request, p}) }))
			}
			return err
		}
		for _, r := range b.running {
			if err := r.write(ctx, func(p Piece) bool { return yield(BatchPiece{r.request, p}) }); err != nil {
				return err
			}
		}
		accepted = b.accepted() - accepted
		if err := b.release(); err != nil {
			return err
		}
		if took := stopwatch.Since(start); prompts {
			b.statistics.Prefill += took
		} else {
			b.statistics.Decode += took
			b.statistics.decoded += tokens + accepted
		}
	}
}

// accepted is how many guesses were right in the requests that are computed.
func (b *Batch) accepted() (n int) {
	for _, r := range b.running {
		n += r.statistics.Accepted
	}
	return n
}

// prompts says whether some prompt is not computed yet.
func (b *Batch) prompts() bool {
	return slices.ContainsFunc(b.running, func(r *running) bool { return r.writers == nil })
}

// pending is how many texts wait for their next token.
func (b *Batch) pending() (n int) {
	for _, r := range b.running {
		for _, w := range r.writers {
			if w.result.End == "" {
				n++
			}
		}
	}
	return n
}

// admit begins requests, as long as there are streams for all of their samples.
func (b *Batch) admit() error {
	taken := 0
	for _, r := range b.running {
		taken += r.r.Samples
	}
	for b.begun < len(b.list) && taken+b.list[b.begun].r.Samples <= b.engine.Streams() {
		g := b.list[b.begun]
		q, err := b.engine.Add(g.r.Prompt)
		if err != nil {
			return err
		}
		b.running = append(b.running, &running{Generation: g, request: b.begun, first: q})
		b.begun++
		taken += g.r.Samples
	}
	return nil
}

// step computes once.
func (b *Batch) step(ctx context.Context) error {
	if s, ok := b.engine.(stepper); ok {
		_, err := s.Advance(ctx)
		return err
	}
	return b.engine.Step(ctx)
}

// write picks the next token of each continuation whose logits are there.
func (r *running) write(ctx context.Context, yield func(Piece) bool) (err error) {
	if r.writers == nil {
		if !r.first.Ready() {
			return nil
		}
		if r.writers, err = r.Generation.writers(r.first); err != nil {
			return err
		}
	}
	for i, w := range r.writers {
		if w.result.End == "" && w.ready() {
			if err := r.advance(ctx, i, w, yield); err != nil {
				return err
			}
		}
	}
	return nil
}

// ready says whether the next token of a continuation can be picked, or was drawn on the device.
func (w *writer) ready() bool {
	if d, ok := w.q.(Drawer); ok {
		if _, drawn := d.Drawn(); drawn {
			return true
		}
	}
	return w.q.Ready()
}

// release closes the requests that have ended.
func (b *Batch) release() (err error) {
	b.running = slices.DeleteFunc(b.running, func(r *running) bool {
		if r.writers == nil || slices.ContainsFunc(r.writers, func(w *writer) bool { return w.result.End == "" }) {
			return false
		}
		err = errors.Join(err, r.close())
		return true
	})
	return err
}

// close closes the sequences of a request.
func (r *running) close() error {
	if len(r.writers) == 0 {
		return r.first.Close()
	}
	var errs []error
	for _, w := range r.writers { // the first has the first sequence
		errs = append(errs, w.q.Close())
	}
	return errors.Join(errs...)
}
