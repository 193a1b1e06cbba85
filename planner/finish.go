package planner

import (
	"spillway/plan"
	"spillway/planner/pass"
	"spillway/planner/strategy"
)

// draft is a plan whose buffers have no places yet.
type draft struct {
	*pass.Memory
	plan   *plan.Plan
	choice strategy.Choice
}

func newDraft(e *emitter) *draft {
	d := &draft{pass.NewMemory(e.p, e.b.site.Alignment, append(e.diskHolds(), e.cpuUpdateHolds()...)), e.p, e.c}
	d.DelayReuse(e.c.DelayedReuse)
	return d
}

// diskHolds lets stops on the way to and from the disk live until later ones are taken, so
// that reading does not wait for the memory of what is still written.
func (e *emitter) diskHolds() (holds []pass.Hold) {
	for i, id := range e.diskStops {
		if later := i + 2*e.c.PrefetchStates; e.c.PrefetchStates > 0 && later < len(e.diskStops) {
			holds = append(holds, pass.Hold{Buffer: id, Until: e.diskStops[later]})
		}
	}
	return holds
}
