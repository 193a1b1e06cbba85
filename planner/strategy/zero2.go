package strategy

// ZeRO2Strategy shards gradients too: after every round of micro-batches they are summed
// on the device that owns their slab.
var ZeRO2Strategy = &Strategy{
	Name:        string(ZeRO2),
	Title:       "ZeRO-2",
	Doc:         "the same, with gradients sharded too",
	Needs:       Needs{Devices: true, MicroBatches: true},
	Constraints: Constraints{Parallelism: ZeRO2},
	In:          func(c Choice) bool { return c.Parallelism() == ZeRO2 },
	Describe:    onDevices("ZeRO-2"),
	Spread: func(c *Choice, f Facts, _ func(int) []int) {
		c.Devices, c.ShardGradients = min(f.Devices, f.MicroBatches), true
	},
	Sensible:   func(f Facts) bool { return f.MicroBatches > 1 },
	Replicates: true,
	ZeROStage:  2,
}
