package strategy

// ZeRO1Strategy gives each device its micro-batches and all weights; optimizer state is
// sharded. Each device sums its own gradients, and devices add theirs once.
var ZeRO1Strategy = &Strategy{
	Name:        string(ZeRO1),
	Title:       "ZeRO-1",
	Doc:         "data parallel: each device has its micro-batches, all weights and whole gradients; optimizer state is sharded",
	Needs:       Needs{Training: true, Devices: true, MicroBatches: true},
	Constraints: Constraints{Parallelism: ZeRO1},
	In:          func(c Choice) bool { return c.Parallelism() == ZeRO1 },
	Describe:    onDevices("ZeRO-1"),
	Spread:      func(c *Choice, f Facts, _ func(int) []int) { c.Devices = min(f.Devices, f.MicroBatches) },
	// Else each device has one gradient to send anyway, as with ZeRO-2.
	Sensible:   func(f Facts) bool { return f.Training && f.MicroBatches > f.Devices },
	Replicates: true,
	// Where something leaves the device, a block has all its micro-batches at once, as with
	// ZeRO-2.
	StaysOnDevice: true,
	ZeROStage:     1,
	Inference:     ZeRO2Strategy,
}
