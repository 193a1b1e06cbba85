package strategy

import "slices"

// ModelParallelStrategy gives each device its blocks; one device works at a time.
var ModelParallelStrategy = &Strategy{
	Name:        string(ModelParallel),
	Title:       "model parallel",
	Doc:         "each device has its blocks, and one works at a time",
	Needs:       Needs{Devices: true},
	Constraints: Constraints{Parallelism: ModelParallel},
	In:          func(c Choice) bool { return c.Parallelism() == ModelParallel },
	Describe:    onDevices("model parallel"),
	Spread: func(c *Choice, f Facts, split func(int) []int) {
		c.Devices, c.Split = f.Devices, slices.Clone(split(f.Devices))
	},
	// Else a pipeline is the same with less waiting.
	Sensible: func(f Facts) bool { return f.MicroBatches == 1 || !f.Training },
}
