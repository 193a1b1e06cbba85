package train

import (
	"context"

	"spillway/executor"
	"spillway/trace"
)

// timelineIteration is the iteration that a timeline records, counted from 1 in this
// process. In the first two, caches are cold and libraries choose algorithms.
const timelineIteration = 3

// iterate runs one iteration, and records its timeline if it is one to record: the third of
// this process, or the last of the run if that is earlier, or one that was asked for. No
// context can cancel it, because an interrupted iteration would leave undefined weights.
func (t *Trainer) iterate(numbers executor.IterationArgs) error {
	at := t.startedAt + timelineIteration
	if t.c.Iterations > 0 {
		at = min(at, t.c.Iterations)
	}
	asked := t.c.TraceNext != nil && t.c.TraceNext()
	if t.traced = t.c.Timeline != nil && (asked || t.done+1 == at); !t.traced {
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
