package planner

import (
	"fmt"

	"spillway/plan"
)

// emit writes the plan of a choice: homes, then the steps of one iteration.
func (b *blueprint) emit(c Choice) (*plan.Plan, error) {
	d, err := b.draft(c)
	if err != nil {
		return nil, err
	}
	d.packed()
	return d.finish(), nil
}

// draft writes the plan of a choice but for the places of its buffers.
func (b *blueprint) draft(c Choice) (*draft, error) {
	c = b.allowed(c)
	e := &emitter{b: b, c: c, programs: map[*laid]int{}, carry: b.newBorders(), grad: b.newBorders(), kept: b.newBorders()}
	e.start()
	e.p.Buffers, e.p.Steps = b.takeRoom()
	if err := e.homes(); err != nil {
		return nil, fmt.Errorf("planning %s: %w", b.model.Name, err)
	}
	e.uses = e.sequence()
	e.windows = newWindows(e)
	e.countGradients()
	e.owed = make([]bool, len(e.p.Slabs))
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
	e.uploadAll(0)
	b.usual = size{len(e.p.Buffers) + len(e.p.Buffers)/16, len(e.p.Steps) + len(e.p.Steps)/16}
	return newDraft(e), nil
}

// size of a plan before its frees.
type size struct{ buffers, steps int }

// room is the memory of a plan that is no longer wanted.
type room struct {
	buffers []plan.Buffer
	steps   []plan.Step
}

// takeRoom is memory for a plan of the usual size.
func (b *blueprint) takeRoom() ([]plan.Buffer, []plan.Step) {
	r := b.room
	b.room = room{}
	if r.steps == nil {
		return make([]plan.Buffer, 0, b.usual.buffers), make([]plan.Step, 0, b.usual.steps)
	}
	return r.buffers, r.steps
}

// allowed is a choice without what cannot be here.
func (b *blueprint) allowed(c Choice) Choice {
	c.Vertical = b.vertical(c)
	c.Delayed = c.Delayed && b.delayable() && count(c.OnDisk) == 0
	if !b.hostable() {
		c.Hosted = nil
	}
	return c
}

// vertical says whether all micro-batches pass a block before the next: where the
// choice says so, and where only that order sums a gradient block by block.
func (b *blueprint) vertical(c Choice) bool {
	return c.Vertical || b.training() && !c.Pipeline && b.tangled
}

// emitter writes one plan. Buffers get their offsets at the end.
type emitter struct {
	b        *blueprint
	c        Choice
	p        *plan.Plan
	programs map[*laid]int
	uses     []use // of the iteration, in order
	windows  []*window

	host      int     // the host's arena; device d has arena d
	processor int     // the host's among the devices, -1 for none
	hostClip  int     // the clip factor on the host
	disk      int     // the disk among the devices, -1 for none; its arena follows the host's
	batchHome []int   // by micro: on the host
	result    []int   // by micro: on the host
	landed    [][]int // by slab the host updates: what came there for it
	uploads   []upload
	stops     []int // stops on the host between device and disk, in order
	partials  int   // on device 0: sums of squares
	on        []onDevice

	carry *borders    // what a block takes
	grad  *borders    // the gradient of what a block takes
	kept  *borders    // from forward to backward
	found []*int      // scratch of waiting
	binds []plan.Bind // room for those of steps to come

	owner   []int   // by slab: the device that updates it
	final   [][]int // by use: slabs whose gradient it completes
	rounded [][]int // by use: slabs whose owner gets what other devices have of its gradient

	turns            []turn // updates of the iteration, in order
	fetched, updated int    // how many of them
	lateTurns        int    // of the iteration before; they come first
	owed             []bool // by slab: of the iteration before, and not made yet
	lateHosted       []int  // slabs that the host updates late, in the order of first use
	hostedLate       int    // how many of them it has
	late             bool   // steps are added for late updates

	// counting: homes are only counted, in their arenas, and state is what of the
	// optimizer's rests away from devices.
	counting bool
	hosting  bool // the slab at hand is updated by the host
	state    away
}

// onDevice is what a device holds; -1 for nothing.
type onDevice struct {
	consts  int
	clip    int
	batch   []int       // by micro
	slabs   []slabState // by slab
	written []bool      // by param: its gradient has been written here
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
	if e.processor = -1; e.b.training() && e.c.hostedSlabs() > 0 {
		e.processor = len(e.p.Devices)
		e.p.Devices = append(e.p.Devices, plan.Device{Name: HostName})
	}
	if e.disk = -1; count(e.c.OnDisk) > 0 {
		e.disk = len(e.p.Devices)
		e.p.Devices = append(e.p.Devices, plan.Device{Name: DiskName, Budget: b.site.Disk.Budget})
		e.p.Arenas = append(e.p.Arenas, plan.Arena{Name: DiskName, Tier: plan.OnDisk, Device: e.disk})
	}
	e.p.Update = b.update
}

func (e *emitter) home(name string, class plan.Class, arena int, bytes int64) int {
	if e.counting {
		e.count(class, arena, bytes)
		return -1
	}
	id := e.buffer(name, class, arena, bytes)
	e.p.Buffers[id].Home = true
	return id
}

func (e *emitter) count(class plan.Class, arena int, bytes int64) {
	at := &e.p.Arenas[arena].Bytes
	*at = up(*at, e.b.site.Alignment) + bytes
	if arena >= e.host && !e.hosting && (class == plan.Master || class == plan.Moment) {
		e.state.add(bytes, arena > e.host)
	}
}

func (e *emitter) buffer(name string, class plan.Class, arena int, bytes int64) int {
	e.p.Buffers = append(e.p.Buffers, plan.Buffer{Name: name, Class: class, Arena: arena, Bytes: bytes})
	return len(e.p.Buffers) - 1
}

func (e *emitter) add(s plan.Step) {
	s.Late = e.late
	e.p.Steps = append(e.p.Steps, s)
}

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
	e.updateLate(u)
	e.windows[u.device].enter(u.turn)
	e.fetchStates(i)
	for _, k := range e.trained(u) {
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
	for _, k := range e.rounded[i] {
		e.sumDevices(k)
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
