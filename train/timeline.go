package train

import (
	"context"

	"spillway/executor"
	"spillway/trace"
)

// settled is the iteration of a run that its timeline is of: the first two find caches
// cold and libraries choosing.
const timelineIteration = 3

// iterate runs one iteration, and hands its timeline over when it is the one to look at.
// An iteration that is cut short leaves undefined weights, so it never is.
func (t *Trainer) iterate(numbers executor.IterationArgs) error {
	if !t.recordsTimeline() {
		return t.run.Executor().Iterate(context.Background(), numbers)
	}
	ring := trace.NewRing(len(t.run.Plan.Instructions))
	if err := t.run.Executor().Trace(ring); err != nil {
		return err
	}
	if err := t.run.Executor().Iterate(context.Background(), numbers); err != nil {
		return err
	}
	t.c.Timeline(t.done+1, trace.FromZero(ring.Events()))
	return t.run.Executor().Trace(nil)
}

// watched says whether the iteration at hand is the one that the timeline is of: the
// third of the run, or its last if that is earlier.
func (t *Trainer) recordsTimeline() bool {
	if t.c.Timeline == nil {
		return false
	}
	at := t.startedAt + timelineIteration
	if t.c.Iterations > 0 {
		at = min(at, t.c.Iterations)
	}
	return t.done+1 == at
}
