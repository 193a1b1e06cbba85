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
// this process, or the last of the run if that is earlier, or one that was asked for. The one
// after it is profiled, where that is asked for; with Config.TraceLast these are the last two. No context can cancel it, because an interrupted
// iteration would leave undefined weights.
func (t *Trainer) iterate(numbers executor.IterationArgs) error {
	at := t.startedAt + timelineIteration
	profiledAt := at + 1
	if t.c.Iterations > 0 {
		if t.c.TraceLast {
			at, profiledAt = t.c.Iterations-1, t.c.Iterations
		}
		at, profiledAt = min(at, t.c.Iterations), min(profiledAt, t.c.Iterations)
	}
	asked := t.c.TraceNext != nil && t.c.TraceNext()
	timeline, profiled := t.c.Timeline != nil && (asked || t.done+1 == at), t.c.Profile != nil && t.done+1 == profiledAt
	if t.traced = timeline || profiled; !t.traced {
		return t.run.Executor().Iterate(context.Background(), numbers)
	}
	ring := trace.NewRing(len(t.run.Plan.Instructions))
	var list []executor.OpTime
	var ops func(executor.OpTime)
	if profiled {
		ops = func(o executor.OpTime) { list = append(list, o) }
	}
	if err := t.run.Executor().TracePhase("", ring, ops); err != nil {
		return err
	}
	if err := t.run.Executor().Iterate(context.Background(), numbers); err != nil {
		return err
	}
	if timeline {
		t.c.Timeline(t.done+1, trace.FromZero(ring.Events()))
	}
	if profiled {
		t.c.Profile(t.done+1, ring.Events(), list)
	}
	return t.run.Executor().Trace(nil)
}
