package strategy

import (
	"fmt"

	"spillway/plan"
)

// CPUOffload stores weights in host memory too, from where they stream to the device.
var CPUOffload = &Strategy{
	Name:        "cpu-offload",
	Title:       "CPU offload",
	Doc:         "weights and optimizer state are stored in host memory, some or all, and weights stream to the device",
	Constraints: Constraints{Weights: plan.OnHost, State: plan.OnHost},
	In:          func(c Choice) bool { return Count(c.Streamed) > 0 },
	Describe: func(c Choice) string {
		return fmt.Sprintf("CPU offload of %d of %d parameter buffers, prefetch depth %d", Count(c.Streamed), len(c.Streamed), c.Prefetch)
	},
	Lines: func(f Facts) (list []Line) {
		depths := []int{3, 2, 1}
		if f.Training && !f.Alone { // the search improves on what it finds, and reaches 3
			depths = []int{2, 1}
		}
		for _, depth := range depths {
			for _, n := range f.Recomputing() {
				list = append(list, streaming(f, depth, n, 0))
			}
		}
		if f.Training {
			list = append(list, withActivations(f)...)
		}
		return list
	},
}

// streaming is the line along which more and more weights stream, and with training all
// optimizer state is stored on the host.
func streaming(f Facts, depth, recompute, activations int) Line {
	m := Mix{Prefetch: depth, Recompute: recompute, OffloadedActivations: activations}
	if f.Training {
		m.OffloadedState, m.PrefetchStates = f.Slabs, depth-1
	}
	return Line{f.Slabs, func(i int) Mix { m := m; m.Streamed = i; return m }}
}

// withActivations are the lines in which what is saved waits on the host as well.
func withActivations(f Facts) []Line {
	list := []Line{streaming(f, 1, f.AllRecomputed(), f.Blocks)}
	for _, n := range []int{f.Blocks, f.AllRecomputed()} {
		if !f.Alone {
			list = append(list, Line{f.Blocks, func(i int) Mix {
				return Mix{OffloadedState: f.Slabs, Recompute: n, OffloadedActivations: i, PrefetchStates: 1}
			}})
		}
		list = append(list, streaming(f, 2, n, f.Blocks))
	}
	return list
}
