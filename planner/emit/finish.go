package emit

import (
	"spillway/plan"
	"spillway/planner/pass"
	"spillway/planner/strategy"
)

// Draft is a plan whose buffers have no places yet.
type Draft struct {
	*pass.Memory
	Plan   *plan.Plan
	Choice strategy.Choice
}

func newDraft(e *emitter) *Draft {
	d := &Draft{pass.NewMemory(e.p, e.l.Site.Alignment, append(e.diskHolds(), e.cpuUpdateHolds()...)), e.p, e.c}
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
