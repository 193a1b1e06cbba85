package strategy

import "fmt"

// CPUUpdate has the CPU run the optimizer where its state is stored, during the backward.
var CPUUpdate = &Strategy{
	Name:  "cpu-update",
	Title: "optimizer step on CPU",
	Doc:   "the CPU runs the optimizer where its state is stored, for some parameter buffers or all",
	Needs: Needs{Training: true},
	In:    func(c Choice) bool { return c.CPUUpdates() > 0 },
	Describe: func(c Choice) string {
		return fmt.Sprintf("optimizer step on CPU for %d of %d", c.CPUUpdates(), len(c.UpdatedByCPU))
	},
	Variant: func(f Facts, line Line) (Line, bool) {
		return Line{line.Size, func(i int) Mix {
			m := line.Mix(i)
			m.UpdatedByCPU, m.PrefetchStates = f.Slabs, 0
			return m
		}}, f.CPUUpdates && line.Mix(line.Size).OffloadedState > 0
	},
}
