package executor

import (
	"errors"
	"fmt"

	"spillway/device"
	"spillway/plan"
)

// An iteration ends while copies to the host are under way that only later iterations
// need. The next one waits for them step by step, where the plan says so. Whoever else
// looks at memory waits for them first.

// trail is what is known of such copies.
type carriedOver struct {
	underway bool   // there may be some
	of       uint64 // the iteration they are of
}

// end is where an iteration ends in a lane: all of it is done, or where steps trail, all
// before them.
type laneEnd struct {
	carriesOver bool
	until       int // the last step before those that trail, -1 for none
}

// findEnds of all lanes, in the order of their numbers.
func laneEnds(p *plan.Plan) []laneEnd {
	ends := make([]laneEnd, len(p.Devices)*len(plan.Lanes))
	for i := range ends {
		ends[i].until = -1
	}
	for i := range p.Instructions {
		s := &p.Instructions[i]
		if s.Verb == plan.Free {
			continue
		}
		if e := &ends[s.LaneIndex()]; s.CarriesOver {
			e.carriesOver = true
		} else {
			e.until = i
		}
	}
	return ends
}

// finish waits until an iteration has ended. Whoever is told the times of its steps, or
// repeats it as a whole, waits for what trails too.
func (e *Executor) finish(n IterationArgs) error {
	if e.trace.sink != nil || e.graph.graph != nil {
		return e.Sync()
	}
	var met error
	for i, q := range e.opened {
		if err := e.await(q, e.ends[i]); err != nil {
			met = errors.Join(met, err)
		}
		if e.ends[i].carriesOver {
			e.carried = carriedOver{true, n.Iteration}
		}
	}
	if met != nil {
		return errors.Join(met, e.Sync())
	}
	return nil
}

// await waits for the end of an iteration in a lane.
func (e *Executor) await(q device.Queue, end laneEnd) error {
	switch {
	case !end.carriesOver:
		return q.Sync()
	case end.until >= 0:
		return q.SyncTo(e.instructions[end.until].done)
	}
	return nil
}

// turn makes what the last iteration has recorded the past of the next.
func (e *Executor) swapEvents() {
	for i := range e.instructions {
		if p := &e.instructions[i]; p.last != nil {
			p.done, p.last = p.last, p.done
		}
	}
}

// text says in an error of an iteration that it may be one of these copies.
func (t carriedOver) text() string {
	if !t.underway {
		return ""
	}
	return fmt.Sprintf(", or the copies that trail iteration %d", t.of)
}

// land waits for what trails the last iteration.
func (e *Executor) awaitCarried() error {
	if !e.carried.underway {
		return nil
	}
	if err := e.Sync(); err != nil {
		return fmt.Errorf("the copies that trail iteration %d: %w", e.carried.of, err)
	}
	return nil
}
