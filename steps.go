package spillway

import (
	"encoding/json"
	"fmt"
	"iter"

	"spillway/run/batch"
	"spillway/train"
)

// Steps trains an iteration on each batch of a sequence, and gives their losses:
//
//	for loss, err := range net.Steps(batches) {
//		if err != nil {
//			return err
//		}
//		fmt.Println(loss)
//	}
//
// While an iteration runs, the batch after it is asked for, and where that is faster and the memory suffices copied to the
// GPU, as a PyTorch loop does with a DataLoader of pinned memory and non-blocking copies. Losses and weights have the bits
// of Step. The sequence is asked from the goroutine of the loop. What a batch holds may change once the next one is asked
// for.
//
// A training run that was planned for single batches, by Step or since Config has their size, is planned again if copying them
// takes a noticeable share of a step.
//
// It ends with the sequence, or behind the first error: of the sequence itself, or of a step. A loop that is left
// before may have asked for one batch more than it trained on. Other calls may be made between two steps.
func (w *Wrapped) Steps(batches iter.Seq2[Batch, error]) iter.Seq2[float64, error] {
	return func(yield func(float64, error) bool) {
		if err := w.prefetchBatches(); err != nil {
			yield(0, fmt.Errorf("training %s: %w", w.model.Name, err))
			return
		}
		next, stop := iter.Pull2(batches)
		defer stop()
		ask := &asked{next: next}
		for {
			b, err, more := ask.take()
			if !more {
				return
			}
			if err != nil {
				yield(0, fmt.Errorf("training %s: the next batch: %w", w.model.Name, err))
				return
			}
			loss, err := w.stepOn(b, ask)
			if !yield(loss, err) || err != nil {
				w.forget()
				return
			}
		}
	}
}

// prefetchBatches has plans from now on prefetch batches where that is faster, and plans a training run again that takes long to
// copy them: of batches that are given one at a time the next is not known yet.
func (w *Wrapped) prefetchBatches() error {
	if w.sequenced || w.sound() != nil { // the first step says what is wrong
		return nil
	}
	w.sequenced = true
	if w.training == nil || w.c.Bounds.SingleBatch || w.c.Held || !w.training.Plan.Forecast.InputMatters() {
		return nil
	}
	err := w.replanTraining()
	w.sequenced = err == nil
	return err
}

// stepOn trains on a batch, and on the next one that is asked for as far as it can be prepared meanwhile.
func (w *Wrapped) stepOn(b Batch, ask *asked) (float64, error) {
	if w.sound() == nil && w.trainer != nil && w.trainer.Prefetched() && w.feed.ask == ask {
		w.latest = w.training
		return w.trainStep(w.training)
	}
	r, m, err := w.begin(Train, b)
	if err != nil {
		return 0, fmt.Errorf("training %s: %w", w.model.Name, err)
	}
	w.feed.give(m, ask)
	return w.trainStep(r)
}

// forget drops a batch that was prepared for a step which does not come.
func (w *Wrapped) forget() {
	if w.trainer != nil && w.feed != nil {
		w.feed.ask = nil
		_ = w.trainer.DropPrefetched() // going back in a count cannot fail
	}
}

// asked is a sequence of batches, of which one may have been asked for before its step.
type asked struct {
	next  func() (Batch, error, bool)
	ahead *answer
}

// answer is what a sequence gave.
type answer struct {
	batch Batch
	err   error
	more  bool
}

// peek is the next batch, which stays the next.
func (a *asked) peek() *answer {
	if a.ahead == nil {
		a.ahead = &answer{}
		a.ahead.batch, a.ahead.err, a.ahead.more = a.next()
	}
	return a.ahead
}

// take is the next batch.
func (a *asked) take() (Batch, error, bool) {
	got := a.peek()
	a.ahead = nil
	return got.batch, got.err, got.more
}

// givenBatches is a feed of batches that are given one at a time, and are in place already (Wrapped.begin), or that
// are asked for while the step before runs.
type givenBatches struct {
	given     batch.Matched
	sequences int64          // so far
	ask       *asked         // for batches to come; nil where they are given
	coming    *batch.Matched // asked for and not in place yet
}

// give says which batch is in place, and where the next one may come from.
func (g *givenBatches) give(m batch.Matched, ask *asked) { g.given, g.ask, g.coming = m, ask, nil }

// Ready asks for the next batch and says whether it can be put in place next to the one at hand: of another size, or
// unsound, it waits for its own step.
func (g *givenBatches) Ready() bool {
	g.coming = nil
	if g.ask == nil {
		return false
	}
	next := g.ask.peek()
	if !next.more || next.err != nil {
		return false
	}
	m, err := g.given.Match(next.batch)
	if err != nil || m.Size != g.given.Size {
		return false
	}
	g.coming = &m
	return true
}

// Next puts the batch that was asked for in place, or says what the one at hand is.
func (g *givenBatches) Next(p train.Parts) (train.Filled, error) {
	if g.coming != nil {
		m := g.coming
		if g.coming = nil; m.Counted() > 0 {
			if err := m.Fill(p.MicroBatches, p.Part); err != nil {
				return train.Filled{}, err
			}
		}
		return g.filled(m), nil
	}
	return g.filled(&g.given), nil
}

// filled describes a batch and counts it.
func (g *givenBatches) filled(m *batch.Matched) train.Filled {
	f := train.Filled{FirstSequence: g.sequences, Counted: m.Counted(), Tokens: m.Sequences * m.Positions}
	g.sequences += m.Sequences
	return f
}

// Position is how many sequences there were.
func (g *givenBatches) Position() (json.RawMessage, error) { return json.Marshal(g.sequences) }

// Seek goes on counting sequences from there.
func (g *givenBatches) Seek(at json.RawMessage) error { return json.Unmarshal(at, &g.sequences) }
