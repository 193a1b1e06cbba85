package emit

import (
	"spillway/plan"
	"spillway/planner/layout"
	"spillway/planner/pass"
	"spillway/planner/strategy"
)

// script is a plan that is being written: buffers and instructions are appended to it.
// Buffers get their places at the end.
type script struct {
	l *layout.Layout
	c strategy.Choice
	p *plan.Plan

	host int // the host's arena; device d has arena d
	cpu  int // the CPU among the devices, -1 for none
	disk int // the disk among the devices, -1 for none; its arena follows the host's

	diskStops []int    // buffers on the host between device and disk, in order
	deferring bool     // instructions that are added complete the previous iteration
	counter   *counter // nil where buffers are really made
}

// newScript has devices and arenas, and nothing else yet.
func newScript(l *layout.Layout, c strategy.Choice) script {
	config := &l.Model.Config
	w := script{l: l, c: c, cpu: -1, disk: -1, p: &plan.Plan{Version: plan.Version, Model: l.Model.Name, Task: string(config.Task),
		MicroBatchSize: config.MicroBatchSize, Seq: config.Seq, Document: config.Document, Cache: config.Cache, MicroBatches: l.Goal.MicroBatches, CanonicalSums: l.CanonicalSums(),
		Slabs: append([]plan.Slab(nil), l.Slabs.List...), Batch: l.Batch.List, Consts: l.Consts.List, Optimizer: l.Optimizer}}
	for d := range c.DeviceCount() {
		name := l.Site.DeviceName(d)
		w.p.Devices = append(w.p.Devices, plan.Device{Name: name, Rank: l.Site.Device.Rank, Budget: l.Site.DeviceBudget(d), Context: l.Site.Context})
		w.p.Arenas = append(w.p.Arenas, plan.Arena{Name: name, Tier: plan.OnDevice, Device: d})
	}
	w.host = len(w.p.Arenas)
	w.p.Arenas = append(w.p.Arenas, plan.Arena{Name: "host", Tier: l.Site.HostTier()})
	if l.Training() && c.CPUUpdates() > 0 || c.CPURows != nil {
		w.cpu = len(w.p.Devices)
		w.p.Devices = append(w.p.Devices, plan.Device{Name: plan.HostName})
	}
	if strategy.Count(c.OnDisk) > 0 {
		w.disk = len(w.p.Devices)
		w.p.Devices = append(w.p.Devices, plan.Device{Name: plan.DiskName, Budget: l.Site.Disk.Budget})
		w.p.Arenas = append(w.p.Arenas, plan.Arena{Name: plan.DiskName, Tier: plan.OnDisk, Device: w.disk})
	}
	return w
}

// home makes a buffer that keeps its contents between iterations, or counts it.
func (w *script) home(name string, class plan.Class, arena int, bytes int64) int {
	if w.counter != nil {
		w.counter.add(w, class, arena, bytes)
		return -1
	}
	id := w.buffer(name, class, arena, bytes)
	w.p.Buffers[id].Home = true
	return id
}

// buffer makes one that lives for a while.
func (w *script) buffer(name string, class plan.Class, arena int, bytes int64) int {
	w.p.Buffers = append(w.p.Buffers, plan.Buffer{Name: name, Class: class, Arena: arena, Bytes: bytes})
	return len(w.p.Buffers) - 1
}

func (w *script) add(s plan.Instruction) {
	s.Deferred = w.deferring
	w.p.Instructions = append(w.p.Instructions, s)
}

// withDeferred has what emit adds complete the previous iteration, or not.
func (w *script) withDeferred(deferred bool, emit func()) {
	before := w.deferring
	w.deferring = deferred
	emit()
	w.deferring = before
}

// moveIn copies a buffer from the host, the disk or another device to a device.
func (w *script) moveIn(dev, src, block, micro int) int {
	from := w.p.Buffers[src]
	if w.onDisk(src) && w.l.ReadsStraight() {
		dst := w.buffer(from.Name, from.Class, dev, from.Bytes)
		w.moveTo(w.disk, src, dst, block, micro)
		return dst
	}
	if w.onDisk(src) {
		stop := w.diskStop(from)
		w.moveTo(w.disk, src, stop, block, micro)
		src = stop
	}
	dst := w.buffer(from.Name, from.Class, dev, from.Bytes)
	w.moveTo(dev, src, dst, block, micro)
	return dst
}

// moveTo copies a buffer into another one, on the lane to a device.
func (w *script) moveTo(dev, src, dst, block, micro int) {
	w.add(plan.Instruction{Verb: plan.Move, Device: dev, Lane: plan.In, Block: block, MicroBatch: micro, Src: src, Dst: dst})
}

// moveOut copies a buffer from a device to the host or the disk.
func (w *script) moveOut(dev, src, dst, block, micro int) {
	if w.onDisk(dst) {
		stop := w.diskStop(w.p.Buffers[src])
		w.moveOut(dev, src, stop, block, micro)
		dev, src = w.disk, stop
	}
	w.add(plan.Instruction{Verb: plan.Move, Device: dev, Lane: plan.Out, Block: block, MicroBatch: micro, Src: src, Dst: dst})
}

// diskStop makes a buffer on the host between device and disk.
func (w *script) diskStop(of plan.Buffer) int {
	id := w.buffer(of.Name, of.Class, w.host, of.Bytes)
	w.diskStops = append(w.diskStops, id)
	return id
}

func (w *script) onDisk(buffer int) bool {
	return w.disk >= 0 && w.p.Buffers[buffer].Arena == w.host+1
}

// diskHolds lets stops on the way to and from the disk live until later ones are taken, so
// that reading does not wait for the memory of what is still written, or, where nothing is trained, of
// what is still on its way to the device.
func (w *script) diskHolds() (holds []pass.Hold) {
	ahead := 2 * w.c.PrefetchStates
	if !w.l.Training() && w.c.Prefetch > 1 {
		ahead = 1
	}
	for i, id := range w.diskStops {
		if later := i + ahead; ahead > 0 && later < len(w.diskStops) {
			holds = append(holds, pass.Hold{Buffer: id, Until: w.diskStops[later]})
		}
	}
	return holds
}
