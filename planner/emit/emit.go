package emit

import (
	"fmt"

	"spillway/plan"
	"spillway/planner/layout"
	"spillway/planner/pass"
	"spillway/planner/strategy"
)

// Writer writes plans of choices, all of one layout. The memory of drafts that were dropped
// is used again: a search writes hundreds.
type Writer struct {
	l       *layout.Layout
	usual   planSize
	spare   spareMemory
	waiting map[layout.BlockKey]int64 // see waitingBytes
}

// planSize is that of a plan before its frees.
type planSize struct{ buffers, instructions int }

// spareMemory is that of a plan that is no longer wanted.
type spareMemory struct {
	buffers      []plan.Buffer
	instructions []plan.Instruction
}

// NewWriter writes plans of a layout.
func NewWriter(b *layout.Layout) *Writer { return &Writer{l: b, waiting: map[layout.BlockKey]int64{}} }

// Plan writes the plan of a choice, with places for all buffers. Its lanes are not ordered.
func (w *Writer) Plan(c strategy.Choice) (*plan.Plan, error) {
	d, err := w.Draft(c)
	if err != nil {
		return nil, err
	}
	d.Pack()
	d.Finish()
	return d.Plan, nil
}

// Draft writes the plan of a choice but for the places of its buffers.
func (w *Writer) Draft(c strategy.Choice) (*Draft, error) {
	b := w.l
	c = b.Allowed(c)
	e := &emitter{l: b, c: c, programs: map[*layout.LaidProgram]int{}, carry: newBorders(b), grad: newBorders(b), saved: newBorders(b)}
	e.start()
	e.p.Buffers, e.p.Instructions = w.memory()
	if err := e.homes(); err != nil {
		return nil, fmt.Errorf("planning %s: %w", b.Model.Name, err)
	}
	e.uses = e.sequence()
	e.prefetchers = newPrefetchers(e)
	e.countGradients()
	e.owed = make([]bool, len(e.p.Slabs))
	if b.Training() {
		e.queueUpdates()
	}
	for i, u := range e.uses {
		if err := e.use(i, u); err != nil {
			return nil, err
		}
	}
	if b.Training() && b.Goal.Optimizer.Clip {
		e.clippedUpdates()
	}
	e.uploadAll(0)
	w.usual = planSize{len(e.p.Buffers) + len(e.p.Buffers)/16, len(e.p.Instructions) + len(e.p.Instructions)/16}
	return newDraft(e), nil
}

// memory for a plan of the usual size.
func (w *Writer) memory() ([]plan.Buffer, []plan.Instruction) {
	spare := w.spare
	w.spare = spareMemory{}
	if spare.instructions == nil {
		return make([]plan.Buffer, 0, w.usual.buffers), make([]plan.Instruction, 0, w.usual.instructions)
	}
	return spare.buffers, spare.instructions
}

// Drop gives the memory of a draft back, for those to come.
func (w *Writer) Drop(d *Draft) {
	w.spare = spareMemory{d.Plan.Buffers[:0], d.Plan.Instructions[:0]}
}

// UsualLength is how many instructions plans mostly have, frees not counted.
func (w *Writer) UsualLength() int { return w.usual.instructions }

// emitter writes one plan. Buffers get their offsets at the end.
type emitter struct {
	l           *layout.Layout
	c           strategy.Choice
	p           *plan.Plan
	programs    map[*layout.LaidProgram]int
	uses        []use // of the iteration, in order
	prefetchers []*prefetcher

	host      int     // the host's arena; device d has arena d
	cpu       int     // the host's among the devices, -1 for none
	cpuClip   int     // the clip factor on the host
	disk      int     // the disk among the devices, -1 for none; its arena follows the host's
	batchHome []int   // by micro: on the host
	result    []int   // by micro: on the host
	landed    [][]int // by slab the host updates: what came there for it
	uploads   []upload
	diskStops []int // stops on the host between device and disk, in order
	partials  int   // on device 0: sums of squares
	on        []onDevice

	carry *borders       // what a block takes
	grad  *borders       // the gradient of what a block takes
	saved *borders       // from forward to backward
	found []*int         // scratch of waiting
	binds []plan.Binding // room for those of steps to come

	owner   []int   // by slab: the device that updates it
	final   [][]int // by use: slabs whose gradient it completes
	rounded [][]int // by use: slabs whose owner gets what other devices have of its gradient

	updateTurns      []updateTurn // updates of the iteration, in order
	fetched, updated int          // how many of them
	deferredTurns    int          // of the iteration before; they come first
	owed             []bool       // by slab: of the iteration before, and not made yet
	deferredCPU      []int        // slabs that the host updates late, in the order of first use
	deferredCPUDone  int          // how many of them it has
	deferring        bool         // steps are added for late updates

	// counting: homes are only counted, in their arenas, and state is what of the
	// optimizer's rests away from devices.
	counting    bool
	cpuUpdating bool // the slab at hand is updated by the host
	state       OffDevice
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
	master, state int
	scratch       int64
}

func (e *emitter) start() {
	b := e.l
	e.p = &plan.Plan{Version: plan.Version, Model: b.Model.Name, Task: string(b.Model.Config.Task),
		MicroBatchSize: b.Model.Config.MicroBatchSize, Seq: b.Model.Config.Seq, MicroBatches: b.Goal.MicroBatches,
		Slabs: append([]plan.Slab(nil), b.Slabs.List...), Batch: b.Parts, Consts: b.Consts}
	for d := range e.c.DeviceCount() {
		name := b.Site.DeviceName(d)
		e.p.Devices = append(e.p.Devices, plan.Device{Name: name, Rank: b.Site.Device.Rank, Budget: b.Site.DeviceBudget(d)})
		e.p.Arenas = append(e.p.Arenas, plan.Arena{Name: name, Tier: plan.OnDevice, Device: d})
	}
	e.host = len(e.p.Arenas)
	e.p.Arenas = append(e.p.Arenas, plan.Arena{Name: "host", Tier: b.Site.HostTier()})
	if e.cpu = -1; e.l.Training() && e.c.CPUUpdates() > 0 {
		e.cpu = len(e.p.Devices)
		e.p.Devices = append(e.p.Devices, plan.Device{Name: plan.HostName})
	}
	if e.disk = -1; strategy.Count(e.c.OnDisk) > 0 {
		e.disk = len(e.p.Devices)
		e.p.Devices = append(e.p.Devices, plan.Device{Name: plan.DiskName, Budget: b.Site.Disk.Budget})
		e.p.Arenas = append(e.p.Arenas, plan.Arena{Name: plan.DiskName, Tier: plan.OnDisk, Device: e.disk})
	}
	e.p.Optimizer = b.Optimizer
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
	*at = pass.AlignUp(*at, e.l.Site.Alignment) + bytes
	if arena >= e.host && !e.cpuUpdating && (class == plan.Master || class == plan.State) {
		e.state.Add(bytes, arena > e.host)
	}
}

func (e *emitter) buffer(name string, class plan.Class, arena int, bytes int64) int {
	e.p.Buffers = append(e.p.Buffers, plan.Buffer{Name: name, Class: class, Arena: arena, Bytes: bytes})
	return len(e.p.Buffers) - 1
}

func (e *emitter) add(s plan.Instruction) {
	s.Deferred = e.deferring
	e.p.Instructions = append(e.p.Instructions, s)
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
	e.add(plan.Instruction{Verb: plan.Move, Device: dev, Lane: plan.In, Block: block, MicroBatch: micro, Src: src, Dst: dst})
}

// moveOut copies a buffer from a device to the host or the disk.
func (e *emitter) moveOut(dev, src, dst, block, micro int) {
	if e.onDisk(dst) {
		stop := e.stop(e.p.Buffers[src])
		e.moveOut(dev, src, stop, block, micro)
		dev, src = e.disk, stop
	}
	e.add(plan.Instruction{Verb: plan.Move, Device: dev, Lane: plan.Out, Block: block, MicroBatch: micro, Src: src, Dst: dst})
}

// stop makes a stop on the host between device and disk.
func (e *emitter) stop(of plan.Buffer) int {
	id := e.buffer(of.Name, of.Class, e.host, of.Bytes)
	e.diskStops = append(e.diskStops, id)
	return id
}

func (e *emitter) onDisk(buffer int) bool {
	return e.disk >= 0 && e.p.Buffers[buffer].Arena == e.host+1
}

// use emits the runs of a visit, with the moves that feed it and what follows
// from its gradients.
func (e *emitter) use(i int, u use) error {
	e.fetchBatches(u)
	e.updateDeferred(u)
	e.prefetchers[u.device].enter(u.turn)
	e.fetchStates(i)
	for _, k := range e.trained(u) {
		if here := &e.on[u.device].slabs[k]; here.gradient < 0 {
			here.gradient = e.buffer(e.p.Slabs[k].Name+" gradients", plan.Gradient, u.device, e.gradBytes(k))
		}
	}
	for n, j := range u.micros {
		e.fetchInputs(u, j)
		e.prefetchActivations(i, n)
		if err := e.run(u, j); err != nil {
			return err
		}
		e.offloadActivations(u, j)
	}
	for _, k := range e.rounded[i] {
		e.sumDevices(k)
	}
	for _, k := range e.final[i] {
		if err := e.gradientDone(k); err != nil {
			return err
		}
	}
	e.prefetchers[u.device].leave(u.turn)
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
