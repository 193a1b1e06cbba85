package run

import (
	"spillway/planner"
	"spillway/trace"
)

// Site is the hardware that the run was planned for, with its rates.
func (r *Run) Site() planner.Site { return r.site }

// StepTimeline is the Timeline of a phase of a plan to generate, "" for its main instructions, over
// sequences that have so many positions.
func (r *Run) StepTimeline(phase string, positions int64) ([]trace.Event, error) {
	p, err := planner.AtPositions(r.Plan, phase, positions)
	if err != nil {
		return nil, err
	}
	return planner.Timeline(p, r.site)
}
