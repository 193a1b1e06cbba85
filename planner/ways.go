package planner

import (
	"fmt"
	"slices"
)

// way is how several devices share the work.
type way int

const (
	alone        way = iota // one device
	shardedState            // each device has its micro-batches, all weights and whole gradients; optimizer state is sharded (ZeRO-1)
	dataParallel            // the same, with gradients sharded too (ZeRO-2)
	shardedData             // the same, with weights sharded too (ZeRO-3)
	splitModel              // each device has its blocks, one works at a time
	pipelined               // the same, with micro-batches following each other
)

// ways lists what makes sense for so many devices and micro-batches, and is allowed.
func (s *search) ways() []way { return s.allowed(s.sensible()) }

func (s *search) sensible() []way {
	list := []way{alone}
	if s.devices() == 1 {
		return list
	}
	if s.b.goal.MicroBatches > 1 {
		list = append(list, dataParallel)
		if s.b.training() && s.b.goal.MicroBatches > s.devices() { // else each device has one gradient to send anyway
			list = append(list, shardedState)
		}
		list = append(list, shardedData)
		if s.b.training() {
			return append(list, pipelined)
		}
	}
	return append(list, splitModel)
}

func (s *search) devices() int { return max(s.b.site.Devices, 1) }

// spreadOver puts a choice on the devices of the site.
func (s *search) spreadOver(c Choice, w way) Choice {
	if w == alone {
		return c
	}
	c.Devices = s.devices()
	switch w {
	case shardedState:
		c.Devices = min(c.Devices, s.b.goal.MicroBatches)
	case dataParallel:
		c.Devices, c.ShardGradients = min(c.Devices, s.b.goal.MicroBatches), true
	case shardedData:
		c.Devices, c.ShardGradients, c.ShardWeights = min(c.Devices, s.b.goal.MicroBatches), true, true
		c.Prefetch = max(c.Prefetch, 2)
	case splitModel, pipelined:
		c.Split = slices.Clone(s.b.split(c.Devices))
		c.Pipeline = w == pipelined
		c.BreadthFirst = c.BreadthFirst && !c.Pipeline
	}
	return c
}

// split gives each block a device, the same every time.
func (b *blueprint) split(devices int) []int {
	if b.splits[devices] == nil {
		b.splits[devices] = balance(b.blockLoads(), devices)
	}
	return b.splits[devices]
}

// blockLoads is what each block weighs in a split: the time it computes, as a share
// of the model's, plus the share of memory its params take.
func (b *blueprint) blockLoads() []float64 {
	loads := make([]float64, len(b.model.Blocks))
	var time, bytes float64
	times, sizes := make([]float64, len(loads)), make([]float64, len(loads))
	for i := range loads {
		times[i] = b.seconds(b.model.Program(i))
		for _, k := range b.slabs.of[i] {
			if b.owner[k] == i {
				sizes[i] += float64(b.homeBytes[k])
			}
		}
		time, bytes = time+times[i], bytes+sizes[i]
	}
	for i := range loads {
		loads[i] = times[i]/max(time, 1e-12) + sizes[i]/max(bytes, 1)
	}
	return loads
}

// balance cuts the blocks into runs, one per device, so that the heaviest run is
// as light as can be.
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

// cutInto fills runs up to a limit and returns how many it takes.
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

// title of a way.
func (w way) title(devices int) string {
	switch w {
	case shardedState:
		return fmt.Sprintf("data parallel on %d devices with whole gradients (ZeRO-1)", devices)
	case dataParallel:
		return fmt.Sprintf("data parallel on %d devices (ZeRO-2)", devices)
	case shardedData:
		return fmt.Sprintf("data parallel on %d devices with sharded weights (ZeRO-3)", devices)
	case splitModel:
		return fmt.Sprintf("model parallel on %d devices", devices)
	case pipelined:
		return fmt.Sprintf("pipeline on %d devices", devices)
	}
	return "standard"
}

// wayOf tells what a choice does with its devices.
func wayOf(c Choice) way {
	switch {
	case c.devices() == 1:
		return alone
	case c.Split != nil && c.Pipeline:
		return pipelined
	case c.Split != nil:
		return splitModel
	case c.ShardWeights:
		return shardedData
	case c.ShardGradients:
		return dataParallel
	}
	return shardedState
}
