package search

import (
	"fmt"

	"spillway/autograd"
	"spillway/planner/emit"
	"spillway/planner/layout"
	"spillway/planner/strategy"
)

// computeBound is how long computing takes at least.
type computeBound struct {
	device float64 // computes and updates, or waits for other devices, the busiest
	host   float64 // updates
	// firstGradient is when the first gradient is complete: what follows from gradients cannot
	// begin earlier.
	firstGradient float64
}

// computing is how long devices and CPU compute at least.
func (b *target) computing(c strategy.Choice) (t computeBound, err error) {
	micros := (b.Goal.MicroBatches + c.DeviceCount() - 1) / c.DeviceCount()
	if c.Split != nil {
		micros = b.Goal.MicroBatches
	}
	var all, forth, back float64 // all: of all devices
	on := make([]float64, c.DeviceCount())
	for i := range b.Model.Blocks {
		cost, err := b.blockCost(i, c.Level[i])
		if err != nil {
			return t, err
		}
		d := 0
		if c.Split != nil {
			d = c.Split[i]
		}
		if on[d] == 0 { // it waits while the first micro-batch comes here, and others while the last goes on from here
			on[d] = forth + back
		}
		on[d] += (cost.forth + cost.back) * float64(micros)
		t.device, all = max(t.device, on[d]), all+(cost.forth+cost.back)*float64(b.Goal.MicroBatches)
		forth, back = forth+cost.forth, back+cost.back
	}
	switch {
	case c.DelayedUpdates: // updates of the previous iteration are made in this one
	case c.Split != nil:
		t.firstGradient = forth
	case c.BreadthFirst:
		t.firstGradient = forth * float64(micros)
	default:
		t.firstGradient = forth*float64(micros) + back*float64(micros-1)
	}
	updates, err := b.updateSeconds()
	for k, u := range updates {
		if c.ByCPU(k) {
			t.host += u.host
		} else {
			all += u.device
		}
	}
	t.device = max(t.device, all/float64(c.DeviceCount()))
	return t, err
}

// transferBound is how long moving takes at least.
type transferBound struct {
	links          float64 // links and disk, everything
	afterGradients float64 // what follows from gradients
}

// moving is how long links and disk are busy: with weights that stream, optimizer state that
// is stored off the device, offloaded bytes of activations that wait on the host, and what data
// parallel devices send each other. Devices share what is split between them evenly at best.
func (b *target) moving(c strategy.Choice, state emit.OffDevice, offloaded int64) transferBound {
	in, out := b.weightTraffic(c)
	sums, weights := b.peerTraffic(c)
	shares := int64(1)
	if c.Split != nil {
		shares = int64(c.DeviceCount())
	}
	each := int64(c.DeviceCount()) // data parallel devices update a share each
	r, onDisk := b.Site.Device.Link, b.Site.Disk
	peer := float64(b.Site.Peer)
	if peer == 0 {
		peer = float64(r.In)
	}
	if b.ReadsStraight() {
		in.All -= in.OnDisk
	}
	toDevice := seconds(in.All/shares+(state.All+offloaded)/each, float64(r.In))
	toHost := seconds((out.All+state.All+offloaded)/each, float64(r.Out))
	link := max(toDevice+seconds((sums+weights)/each, peer), toHost)
	if r.Bidirectional > 0 { // share of what both directions carry alone that they carry together
		link = max(link, (toDevice+toHost)/(2*float64(r.Bidirectional)))
	}
	written := seconds(out.OnDisk+state.OnDisk, float64(onDisk.Write))
	return transferBound{
		links:          max(link, seconds(in.OnDisk+state.OnDisk, float64(onDisk.Read)), written),
		afterGradients: max(seconds((out.All+state.All)/each, float64(r.Out)), written, seconds(sums/each, peer)),
	}
}

func seconds(bytes int64, rate float64) float64 {
	if rate <= 0 {
		return 0
	}
	return float64(bytes) / rate
}

// peerTraffic is what data parallel devices send each other at least. Sums are gradients that
// go to the owners of their slabs and updated weights that come from there; weights are those
// that are sharded.
func (b *target) peerTraffic(c strategy.Choice) (sums, weights int64) {
	others := int64(c.DeviceCount() - 1)
	if c.Split != nil || others == 0 {
		return 0, 0
	}
	rounds := int64(1)
	if c.ShardGradients {
		rounds = int64(b.roundsOf(c))
	}
	for k, s := range b.Slabs.List {
		if !c.Streamed[k] && c.ShardWeights {
			weights += others * s.WeightBytes
		}
		if !b.Training() || s.Elements == 0 {
			continue
		}
		sums += rounds * others * b.GradBytes(k)
		if !c.Streamed[k] && !c.ShardWeights && !c.ByCPU(k) {
			sums += others * s.WeightBytes
		}
	}
	return sums, weights
}

// weightTraffic is what streamed weights take of the links at least: in, per data parallel
// device or over all devices of a split; out, of all devices together. What is prefetched when
// a walk over the blocks turns round need not come again.
func (b *target) weightTraffic(c strategy.Choice) (in, out emit.OffDevice) {
	rounds := b.roundsOf(c)
	var again emit.OffDevice // what every walk after the first takes
	var largest int64
	for k, s := range b.Slabs.List {
		if c.ByCPU(k) { // its gradient comes down, and weights that are stored on devices go up
			out.Add(b.GradBytes(k), false)
			if !c.Streamed[k] {
				in.Add(s.WeightBytes, false)
			}
		}
		if !c.Streamed[k] {
			continue
		}
		largest = max(largest, s.WeightBytes)
		if !(c.Delayed(k) && !c.ByCPU(k) && b.HasMaster(k)) { // else the update makes them
			in.Add(s.WeightBytes, c.OnDisk[k])
		}
		if b.Training() && s.Elements > 0 && !c.ByCPU(k) {
			out.Add(s.WeightBytes, c.OnDisk[k])
		}
		if owner := b.Slabs.Owner[k]; owner > b.FirstTrained && owner < len(b.Model.Blocks)-1 && b.Slabs.UserCount[k] == 1 {
			again.Add(s.WeightBytes, c.OnDisk[k])
		}
	}
	walks := int64(rounds)
	if b.Training() {
		walks *= 2
	}
	held := int64(c.Prefetch+2) * largest * int64(c.DeviceCount())
	in.All += (walks - 1) * max(again.All-held, 0)
	in.OnDisk += (walks - 1) * max(again.OnDisk-held, 0)
	return in, out
}

// roundsOf is how often the micro-batches of a device walk over its blocks at least.
func (b *target) roundsOf(c strategy.Choice) int {
	switch {
	case b.BreadthFirst(c):
		return max(c.Rounds, 1)
	case c.Split != nil:
		return b.Goal.MicroBatches
	}
	return max(b.Goal.MicroBatches/c.DeviceCount(), 1)
}

// LeastSeconds is how long an iteration takes at least, whatever the choice: a micro-batch passes
// all blocks, forward and backward, one after the other, and devices share the micro-batches
// evenly at best. No kernels are asked for.
func LeastSeconds(b *layout.Layout) (float64, error) {
	var each float64 // of a micro-batch
	known := map[layout.BlockKey]float64{}
	for i := range b.Model.Blocks {
		key := b.BlockKey(i, strategy.SaveAll)
		seconds, ok := known[key]
		if !ok {
			program := b.Computed(i)
			if b.Training() && key.Trained {
				joint, err := autograd.Differentiate(program, autograd.Options{InputGrad: i > b.FirstTrained, Outputs: b.Model.Config.Outputs})
				if err != nil {
					return 0, fmt.Errorf("differentiating block %s: %w", b.Model.Blocks[i].Name, err)
				}
				program = joint.Program
			}
			seconds = b.Seconds(program)
			known[key] = seconds
		}
		each += seconds
	}
	f := b.Facts()
	return each * max(1, float64(f.MicroBatches)/float64(f.Devices)), nil
}
