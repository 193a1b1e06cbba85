package generate

import (
	"context"
	"errors"
	"time"

	"spillway/executor"
	"spillway/internal/stopwatch"
	"spillway/trace"
)

// Watcher looks at the steps of a session, from the session's goroutine.
type Watcher interface {
	// Before is called with a step that is about to run, and says how closely to look at it.
	Before(*StepReport) Look
	// After is called when it has run.
	After(*StepReport)
	// Traced is called, before After, with the times of a step that was looked at: of its
	// instructions and, where asked for, of the ops within them.
	Traced(r *StepReport, events []trace.Event, ops []executor.OpTime)
	// Guessed is called after a step with guesses, once for each sequence that had some, with the
	// number of those that were right: as many tokens came of the step besides the one that always comes.
	Guessed(right int)
	// Shared is called after the step that ended a prompt which several texts begin with: as many tokens
	// come of it besides the one of the step's report.
	Shared(tokens int)
}

// Look says what of a step is timed.
type Look int

// The ways to look.
const (
	AtStep         Look = iota // how long all of it takes
	AtInstructions             // each instruction too; a captured step is not replayed then
	AtOps                      // each op of them too
)

// StepReport is a step of a session. It is valid during the call.
type StepReport struct {
	Phase string // of the plan; "" is its main instructions
	Rows  int    // tokens that it computes
	// Prompt of them are tokens of prompts, the others tokens that were generated.
	Prompt int
	New    int // sequences that have logits, or a token, after it
	// Guesses are tokens of those sequences that were guessed. Whether they are right shows after the
	// step, and Guessed is called with it.
	Guesses int
	// Positions is the number of tokens before the step that its longest sequence has.
	Positions int
	Took      time.Duration

	Sequences int // that are open
	Closed    int // that were before, since the session began
	Waiting   int // of them, those whose prompt is not computed after it
	Stored    int // tokens whose keys and values the cache has after it
	// PagesUsed of Pages of the cache are in use, each of PageTokens positions.
	PagesUsed, Pages, PageTokens int
}

// Watch has every step reported to a watcher from now on; nil ends that. It allocates nothing where
// the watcher does not.
func (s *Session) Watch(w Watcher) { s.watcher = w }

// runStep runs a step, watched.
func (s *Session) runStep(ctx context.Context, at *executor.Step) error {
	if s.watcher == nil {
		return s.executor.RunStep(ctx, at)
	}
	r := &s.report
	*r = StepReport{Phase: at.Phase(), Rows: len(s.rows), PageTokens: int(s.cache.Page), Closed: s.closed}
	for _, row := range s.rows {
		r.Positions = max(r.Positions, row.position)
		if !row.of.decodes() {
			r.Prompt++
		}
	}
	for _, q := range s.ending {
		if r.Guesses += q.guesses; q.of == nil {
			r.New++
		}
	}
	for _, q := range s.order {
		if q.of == nil {
			r.Sequences++
		}
	}
	look := s.watcher.Before(r)
	if look == AtStep {
		began := stopwatch.Now()
		err := s.executor.RunStep(ctx, at)
		r.Took = stopwatch.Since(began)
		return err
	}
	p := s.executor.Plan()
	if r.Phase != "" {
		view, err := p.Phase(r.Phase)
		if err != nil {
			return err
		}
		p = view
	}
	ring := trace.NewRing(len(p.Instructions))
	var list []executor.OpTime
	var ops func(executor.OpTime)
	if look == AtOps {
		ops = func(o executor.OpTime) { list = append(list, o) }
	}
	if err := s.executor.TracePhase(r.Phase, ring, ops); err != nil {
		return err
	}
	began := stopwatch.Now()
	err := s.executor.RunStep(ctx, at)
	r.Took = stopwatch.Since(began)
	if ended := s.executor.Trace(nil); err != nil || ended != nil {
		return errors.Join(err, ended)
	}
	s.watcher.Traced(r, ring.Events(), list)
	return nil
}

// reportStep tells the watcher what there is after a step.
func (s *Session) reportStep() {
	if s.watcher == nil {
		return
	}
	r := &s.report
	for _, q := range s.order {
		if q.of != nil {
			continue
		}
		r.Stored += q.computed
		if q.waits() && !q.decodes() {
			r.Waiting++
		}
	}
	for _, t := range s.tables {
		r.PagesUsed, r.Pages = r.PagesUsed+len(t.references)-len(t.free), r.Pages+len(t.references)
	}
	s.watcher.After(r)
}

// decodes says whether a sequence waits for one token that came after what was computed, or for one with
// guesses behind it, or is a branch of one that does.
func (q *cachedSequence) decodes() bool {
	n := len(q.tokens) - q.computed
	return q.of != nil || q.computed > 0 && n > 0 && n <= 1+q.guesses
}
