package executor

import (
	"errors"
	"fmt"

	"spillway/plan"
)

// An iteration ends while copies to the host still run that only later iterations need.
// The next one waits for them instruction by instruction, as the plan says. Everybody
// else who looks at memory waits for all of them first.

// carriedOver is what is known of such copies.
type carriedOver struct {
	running bool   // there may be some
	of      uint64 // their iteration
}

// laneEnd is where an iteration ends in a lane: behind its last instruction, or before
// those that carry over.
type laneEnd struct {
	carriesOver bool
	brings      bool // its last instructions bring the next batch
	until       int  // the last instruction that does not carry over, -1 for none
}

// laneEnds of all lanes, by their index.
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
		switch end := &ends[s.LaneIndex()]; {
		case p.BringsNextBatch(s):
			end.brings = true
		case s.CarriesOver:
			end.carriesOver = true
		default:
			end.until = i
		}
	}
	return ends
}

// finish waits until an iteration has ended. A trace needs the times of all its
// instructions, so it waits for what carries over too.
func (r *runner) finish(args IterationArgs) error {
	if r.tracer.sink != nil {
		return r.Sync()
	}
	var met error
	for i, q := range r.memory.queues {
		end := r.main.ends[i]
		switch {
		case end.brings && r.replayed: // the graph is waited for where it was launched
		case !end.carriesOver && !end.brings:
			met = errors.Join(met, q.Sync())
		case end.until >= 0:
			met = errors.Join(met, q.SyncTo(r.main.instructions[end.until].done))
		}
		if end.carriesOver {
			r.carried = carriedOver{true, args.Iteration}
		}
	}
	if met = errors.Join(met, r.batchArrived()); met != nil {
		return errors.Join(met, r.Sync())
	}
	return nil
}

// awaitCarried waits for what the last iteration carries over.
func (r *runner) awaitCarried() error {
	if !r.carried.running {
		return nil
	}
	if err := r.Sync(); err != nil {
		return fmt.Errorf("copies carried over from iteration %d: %w", r.carried.of, err)
	}
	return nil
}
