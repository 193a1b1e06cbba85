package planner

import (
	"fmt"

	"spillway/plan"
)

// emit writes the plan of a choice: homes, then the steps of one iteration.
func (b *blueprint) emit(c Choice) (*plan.Plan, error) {
	c.Vertical = c.Vertical || b.training() && !c.Pipeline && b.entangled()
	e := &emitter{b: b, c: c, programs: map[*laid]int{}, carry: map[at]int{}, grad: map[at]int{}, kept: map[at]int{}}
	e.start()
	if err := e.homes(); err != nil {
		return nil, fmt.Errorf("planning %s: %w", b.model.Name, err)
	}
	e.uses = e.sequence()
	e.windows = newWindows(e)
	e.countGradients()
	if b.training() {
		e.queueUpdates()
	}
	for i, u := range e.uses {
		if err := e.use(i, u); err != nil {
			return nil, err
		}
	}
	if b.training() && b.goal.Optimizer.Clip {
		e.clippedUpdates()
	}
	return e.finish(), nil
}

// emitter writes one plan. Buffers get their offsets at the end.
type emitter struct {
	b        *blueprint
	c        Choice
	p        *plan.Plan
	programs map[*laid]int
	uses     []use // of the iteration, in order
	windows  []*window

	host      int   // the host's arena; device d has arena d
	disk      int   // the disk among the devices, -1 for none; its arena follows the host's
	batchHome []int // by micro: on the host
	result    []int // by micro: on the host
	stops     []int // stops on the host between device and disk, in order
	partials  int   // on device 0: sums of squares
	on        []onDevice

	carry map[at]int // what a block takes
	grad  map[at]int // the gradient of what a block takes
	kept  map[at]int // from forward to backward

	owner []int   // by slab: the device that updates it
	left  []int   // by slab: uses that still add to its gradient
	final [][]int // by use: slabs whose gradient it completes

	turns            []turn // updates of the iteration, in order
	fetched, updated int    // how many of them
}

// onDevice is what a device holds; -1 for nothing.
type onDevice struct {
	consts  int
	clip    int
	batch   []int        // by micro
	slabs   []slabState  // by slab
	written map[int]bool // params whose gradient has been written here
}

// slabState is what of a slab is on a device now; -1 for nothing.
type slabState struct {
	weight, gradient int
	pieces           []pieceState // on its owner
}

// pieceState is what of a piece is on the device of its slab's owner, and the scratch
// memory its update needs there.
type pieceState struct {
	master, moment int
	scratch        int64
}

// at names a value of a block's border: which block, carry and micro-batch.
type at struct{ block, index, micro int }

func (e *emitter) start() {
	b := e.b
	e.p = &plan.Plan{Version: plan.Version, Model: b.model.Name, Task: string(b.model.Config.Task),
		Rows: b.model.Config.Rows, Seq: b.model.Config.Seq, Micros: b.goal.Micros,
		Slabs: append([]plan.Slab(nil), b.slabs.list...), Parts: b.parts, Consts: b.consts}
	for d := range e.c.devices() {
		name := b.site.deviceName(d)
		e.p.Devices = append(e.p.Devices, plan.Device{Name: name, Budget: b.site.budget(d)})
		e.p.Arenas = append(e.p.Arenas, plan.Arena{Name: name, Tier: plan.OnDevice, Device: d})
	}
	e.host = len(e.p.Arenas)
	e.p.Arenas = append(e.p.Arenas, plan.Arena{Name: "host", Tier: b.site.hostTier()})
	if e.disk = -1; count(e.c.OnDisk) > 0 {
		e.disk = len(e.p.Devices)
		e.p.Devices = append(e.p.Devices, plan.Device{Name: DiskName, Budget: b.site.Disk.Budget})
		e.p.Arenas = append(e.p.Arenas, plan.Arena{Name: DiskName, Tier: plan.OnDisk, Device: e.disk})
	}
	e.p.Update = b.update
}

func (e *emitter) home(name string, class plan.Class, arena int, bytes int64) int {
	id := e.buffer(name, class, arena, bytes)
	e.p.Buffers[id].Home = true
	return id
}

func (e *emitter) buffer(name string, class plan.Class, arena int, bytes int64) int {
	e.p.Buffers = append(e.p.Buffers, plan.Buffer{Name: name, Class: class, Arena: arena, Bytes: bytes})
	return len(e.p.Buffers) - 1
}

func (e *emitter) add(s plan.Step) { e.p.Steps = append(e.p.Steps, s) }

// moveIn copies a buffer from the host, the disk or another device to a device.
func (e *emitter) moveIn(dev, src, block, micro int) int {
	from := e.p.Buffers[src]
	if e.onDisk(src) {
		stop := e.stop(from)
		e.moveTo(e.disk, src, stop, block, micro)
		src = stop
	}
	dst := e.buffer(from.Name, from.Class, dev, from.Bytes)
	e.moveTo(dev, src, dst, block, micro)
	return dst
}

func (e *emitter) moveTo(dev, src, dst, block, micro int) {
	e.add(plan.Step{Verb: plan.Move, Device: dev, Lane: plan.In, Block: block, Micro: micro, Src: src, Dst: dst})
}

// moveOut copies a buffer from a device to the host or the disk.
func (e *emitter) moveOut(dev, src, dst, block, micro int) {
	if e.onDisk(dst) {
		stop := e.stop(e.p.Buffers[src])
		e.moveOut(dev, src, stop, block, micro)
		dev, src = e.disk, stop
	}
	e.add(plan.Step{Verb: plan.Move, Device: dev, Lane: plan.Out, Block: block, Micro: micro, Src: src, Dst: dst})
}

// stop makes a stop on the host between device and disk.
func (e *emitter) stop(of plan.Buffer) int {
	id := e.buffer(of.Name, of.Class, e.host, of.Bytes)
	e.stops = append(e.stops, id)
	return id
}

func (e *emitter) onDisk(buffer int) bool {
	return e.disk >= 0 && e.p.Buffers[buffer].Arena == e.host+1
}

// use emits the runs of a visit, with the moves that feed it and what follows
// from its gradients.
func (e *emitter) use(i int, u use) error {
	e.fetchBatches(u)
	e.windows[u.device].enter(u.turn)
	e.fetchStates(i)
	for _, k := range e.trained(u) {
		e.left[k]--
		if here := &e.on[u.device].slabs[k]; here.gradient < 0 {
			here.gradient = e.buffer(e.p.Slabs[k].Name+" gradients", plan.Gradient, u.device, e.gradBytes(k))
		}
	}
	for n, j := range u.micros {
		e.bring(u, j)
		e.bringAhead(i, n)
		if err := e.run(u, j); err != nil {
			return err
		}
		e.spill(u, j)
	}
	for _, k := range e.final[i] {
		if err := e.gradientDone(k); err != nil {
			return err
		}
	}
	e.windows[u.device].leave(u.turn)
	return nil
}

func (e *emitter) fetchBatches(u use) {
	here := &e.on[u.device]
	for _, j := range u.micros {
		if here.batch[j] < 0 {
			here.batch[j] = e.moveIn(u.device, e.batchHome[j], -1, j)
		}
	}
}

// run emits one run of a block's program.
func (e *emitter) run(u use, micro int) error {
	level, fresh := KeepAll, []bool(nil)
	if u.phase == forward || u.phase == backward {
		level = e.c.Level[u.block]
	}
	if e.b.training() {
		fresh = e.fresh(u)
	}
	l, err := e.b.program(u.block, u.phase, level, fresh)
	if err != nil {
		return err
	}
	step := plan.Step{Verb: plan.Run, Device: u.device, Lane: plan.Compute, Block: u.block, Micro: micro, Program: e.programID(l)}
	for _, need := range l.binds {
		need.Buffer = e.bound(need, l, u, micro)
		step.Bind = append(step.Bind, need)
	}
	e.add(step)
	if out, ok := step.Bound(plan.OutResult, 0); ok {
		e.moveOut(u.device, out.Buffer, e.result[micro], u.block, micro)
	}
	return nil
}

// fresh tells, by param port of the block, whose gradient is written for the
// first time this iteration on this device.
func (e *emitter) fresh(u use) []bool {
	params := e.b.model.Blocks[u.block].Params
	fresh := make([]bool, len(params))
	if u.phase == forward {
		return fresh
	}
	written := e.on[u.device].written
	for i, id := range params {
		fresh[i] = !written[id]
	}
	for _, id := range params {
		written[id] = true
	}
	return fresh
}

func (e *emitter) programID(l *laid) int {
	id, ok := e.programs[l]
	if !ok {
		id = len(e.p.Programs)
		e.programs[l] = id
		e.p.Programs = append(e.p.Programs, l.Program)
	}
	return id
}

// bound is the buffer a region of a run gets. Buffers that the run makes are
// new.
func (e *emitter) bound(need plan.Bind, l *laid, u use, micro int) int {
	block, here := e.b.model.Blocks[u.block].Name, &e.on[u.device]
	switch need.Region {
	case plan.InFrame:
		return e.buffer(block+" frame", plan.Workspace, u.device, l.Frame)
	case plan.InWeight:
		return here.slabs[e.b.slabs.of[u.block][need.Index]].weight
	case plan.InGrad:
		return here.slabs[e.b.slabs.of[u.block][need.Index]].gradient
	case plan.InCarry:
		return e.carry[at{u.block, need.Index, micro}]
	case plan.OutCarry:
		return e.made(e.carry, at{u.block + 1, need.Index, micro}, u.device, block+" output", regionBytes(l, need))
	case plan.InGradOut:
		return e.grad[at{u.block + 1, need.Index, micro}]
	case plan.OutGradIn:
		return e.made(e.grad, at{u.block, need.Index, micro}, u.device, block+" input gradient", regionBytes(l, need))
	case plan.InKept:
		return e.made(e.kept, at{u.block, 0, micro}, u.device, block+" kept", l.kept)
	case plan.InBatch:
		return here.batch[micro]
	case plan.InConst:
		return here.consts
	case plan.OutResult:
		return e.buffer(fmt.Sprintf("result %d", micro), plan.ResultData, u.device, regionBytes(l, need))
	}
	return -1
}

func (e *emitter) made(of map[at]int, key at, dev int, name string, bytes int64) int {
	id, ok := of[key]
	if !ok {
		id = e.buffer(name, plan.Activation, dev, bytes)
		of[key] = id
	}
	return id
}

// regionBytes is the end of the last value in a region.
func regionBytes(l *laid, need plan.Bind) (end int64) {
	for v, place := range l.Places {
		if v > 0 && place.Region == need.Region && place.Index == need.Index {
			end = max(end, place.Offset+l.Graph.Types[v].Bytes())
		}
	}
	return end
}
