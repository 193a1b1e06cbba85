package search

// split gives each block a device, the same every time.
func (b *target) split(devices int) []int {
	if b.splits[devices] == nil {
		b.splits[devices] = balance(b.blockLoads(), devices)
	}
	return b.splits[devices]
}

// blockLoads is what each block weighs in a split: its share of the time the model computes,
// plus its share of the memory that params take.
func (b *target) blockLoads() []float64 {
	loads := make([]float64, len(b.Model.Blocks))
	var time, bytes float64
	times, sizes := make([]float64, len(loads)), make([]float64, len(loads))
	for i := range loads {
		times[i] = b.Seconds(b.Computed(i))
		for _, k := range b.Slabs.OfBlock[i] {
			if b.Slabs.Owner[k] == i {
				sizes[i] += float64(b.Slabs.HomeBytes[k])
			}
		}
		time, bytes = time+times[i], bytes+sizes[i]
	}
	for i := range loads {
		loads[i] = times[i]/max(time, 1e-12) + sizes[i]/max(bytes, 1)
	}
	return loads
}

// balance cuts the blocks into runs, one per device, so that the heaviest run is as light as
// can be.
func balance(loads []float64, devices int) []int {
	var low, high float64
	for _, l := range loads {
		low, high = max(low, l), high+l
	}
	for range 50 {
		mid := (low + high) / 2
		if runs, _ := cutInto(loads, mid); runs <= devices {
			high = mid
		} else {
			low = mid
		}
	}
	_, split := cutInto(loads, high)
	return split
}

// cutInto fills runs up to a limit and returns how many that takes.
func cutInto(loads []float64, limit float64) (int, []int) {
	split := make([]int, len(loads))
	run, sum := 0, 0.0
	for i, l := range loads {
		if sum+l > limit && sum > 0 {
			run, sum = run+1, 0
		}
		sum += l
		split[i] = run
	}
	return run + 1, split
}
