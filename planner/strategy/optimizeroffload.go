package strategy

import (
	"fmt"

	"spillway/plan"
)

// OptimizerOffload stores optimizer state in host memory and fetches it for updates.
var OptimizerOffload = &Strategy{
	Name:        "optimizer-offload",
	Title:       "optimizer offload",
	Doc:         "optimizer state is stored in host memory",
	Needs:       Needs{Training: true},
	Constraints: Constraints{Weights: plan.OnDevice, State: plan.OnHost},
	In:          func(c Choice) bool { return Count(c.OffloadedState) > 0 && Count(c.Streamed) == 0 },
	Describe: func(c Choice) string {
		return fmt.Sprintf("optimizer offload of %d of %d parameter buffers", Count(c.OffloadedState), len(c.OffloadedState))
	},
	Lines: func(f Facts) (list []Line) {
		if !f.Training {
			return nil
		}
		for _, n := range f.Recomputing() {
			list = append(list, Line{f.Slabs, func(i int) Mix { return Mix{OffloadedState: i, Recompute: n, PrefetchStates: 1} }})
		}
		return list
	},
}
