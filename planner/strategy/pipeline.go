package strategy

import "slices"

// PipelineStrategy has micro-batches follow each other over the blocks of the devices, in
// the order known as 1F1B.
var PipelineStrategy = &Strategy{
	Name:        string(Pipeline),
	Title:       "pipeline",
	Doc:         "each device has its blocks, and micro-batches follow each other",
	Needs:       Needs{Training: true, Devices: true, MicroBatches: true},
	Constraints: Constraints{Parallelism: Pipeline},
	In:          func(c Choice) bool { return c.Parallelism() == Pipeline },
	Describe:    onDevices("pipeline"),
	Spread: func(c *Choice, f Facts, split func(int) []int) {
		c.Devices, c.Split, c.Pipeline, c.BreadthFirst = f.Devices, slices.Clone(split(f.Devices)), true, false
	},
	Sensible:  func(f Facts) bool { return f.MicroBatches > 1 && f.Training },
	Inference: ModelParallelStrategy,
}
