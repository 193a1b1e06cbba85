package strategy

// ZeRO3Strategy shards weights too: devices fetch those of a block when it runs.
var ZeRO3Strategy = &Strategy{
	Name:        string(ZeRO3),
	Title:       "ZeRO-3",
	Doc:         "the same, with weights sharded too",
	Needs:       Needs{Devices: true, MicroBatches: true},
	Constraints: Constraints{Parallelism: ZeRO3},
	In:          func(c Choice) bool { return c.Parallelism() == ZeRO3 },
	Describe:    onDevices("ZeRO-3"),
	Spread: func(c *Choice, f Facts, _ func(int) []int) {
		c.Devices, c.ShardGradients, c.ShardWeights = min(f.Devices, f.MicroBatches), true, true
		c.Prefetch = max(c.Prefetch, 2)
	},
	Sensible:  func(f Facts) bool { return f.MicroBatches > 1 },
	ZeROStage: 3,
}
