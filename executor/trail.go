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
type trail struct {
	underway bool   // there may be some
	of       uint64 // the iteration they are of
}

// end is where an iteration ends in a lane: all of it is done, or where steps trail, all
// before them.
type end struct {
	trails bool
	until  int // the last step before those that trail, -1 for none
}

// findEnds of all lanes, in the order of their numbers.
func findEnds(p *plan.Plan) []end {
	ends := make([]end, len(p.Devices)*len(plan.Lanes))
	for i := range ends {
		ends[i].until = -1
	}
	for i := range p.Steps {
		s := &p.Steps[i]
		if s.Verb == plan.Free {
			continue
		}
		if e := &ends[s.LaneNumber()]; s.Trails {
			e.trails = true
		} else {
			e.until = i
		}
	}
	return ends
}

// finish waits until an iteration has ended. Whoever is told the times of its steps, or
// repeats it as a whole, waits for what trails too.
func (e *Executor) finish(n Numbers) error {
	if e.trace.sink != nil || e.repeat.run != nil {
		return e.Sync()
	}
	var met error
	for i, q := range e.opened {
		if err := e.await(q, e.ends[i]); err != nil {
			met = errors.Join(met, err)
		}
		if e.ends[i].trails {
			e.trail = trail{true, n.Iteration}
		}
	}
	if met != nil {
		return errors.Join(met, e.Sync())
	}
	return nil
}

// await waits for the end of an iteration in a lane.
func (e *Executor) await(q device.Queue, end end) error {
	switch {
	case !end.trails:
		return q.Sync()
	case end.until >= 0:
		return q.SyncTo(e.steps[end.until].done)
	}
	return nil
}

// turn makes what the last iteration has recorded the past of the next.
func (e *Executor) turn() {
	for i := range e.steps {
		if p := &e.steps[i]; p.last != nil {
			p.done, p.last = p.last, p.done
		}
	}
}

// text says in an error of an iteration that it may be one of these copies.
func (t trail) text() string {
	if !t.underway {
		return ""
	}
	return fmt.Sprintf(", or the copies that trail iteration %d", t.of)
}

// land waits for what trails the last iteration.
func (e *Executor) land() error {
	if !e.trail.underway {
		return nil
	}
	if err := e.Sync(); err != nil {
		return fmt.Errorf("the copies that trail iteration %d: %w", e.trail.of, err)
	}
	return nil
}
