// Package executor carries out plans. It allocates the arenas a plan names, once,
// prepares every launch, and then runs iterations without allocating anything. It
// decides nothing: any sound plan, also a hand-written one, does what it says.
//
// A file per verb: move.go, run.go, reduce.go, update.go; free.go only counts,
// since memory is the plan's. trail.go is about what an iteration leaves under way.
package executor

import (
	"errors"
	"fmt"
	"io"

	"spillway/device"
	"spillway/dtype"
	"spillway/op"
	"spillway/plan"
)

// Executor is a plan on its devices, ready to run.
type Executor struct {
	plan    *plan.Plan
	devices []device.Device
	arenas  []device.Memory
	queues  map[laneKey]device.Queue
	kernels map[programOn][]device.Kernel // by program and device: one per node
	// What devices that join kernels were given, by what it depends on.
	joined        map[programOn]func(device.Queue) error
	joinedUpdates map[updateOn]func(device.Queue) error
	updateKernels map[string]device.Kernel // by what updateKernel writes to keyRoom
	keyBuffer     []byte
	instructions  []prepared
	ends          []laneEnd // by queue, as opened
	carried       carriedOver
	// Numbers of the iteration, where launches read them.
	runs       []runArgs
	updates    []updateArgs
	clipArgs   *op.Args
	norm       deviceBuffer  // where the clip factor and the norm are made
	deferred   bool          // the plan leaves updates to the next iteration
	pending    IterationArgs // of the iteration that late steps complete
	hasPending bool          // there is one
	staging    device.Memory
	opened     []device.Queue
	with       []io.Closer

	result     dtype.Type        // of the last block
	limits     map[string]op.IDs // of ids in parts of the batch
	onGradient func(Tensor) error
	trace      tracer
	graph      capture

	counters  Counters
	transfers map[Route]*Transfers
}

type laneKey struct {
	device int
	lane   plan.Lane
}

// Counters say what an executor really did since it was made.
type Counters struct {
	Iterations int64
	Moves      int64
	BytesIn    int64
	BytesOut   int64
	Launches   int64
	// Live is the most bytes of the device arenas that buffers in use took at
	// once: what the plan said, seen from the steps.
	PeakLive int64
}

// prepared is a step ready to be issued.
type prepared struct {
	queue device.Queue
	done  device.Event // nil when nobody waits for the step
	last  device.Event // done of the iteration before; nil when nobody waits for that
	issue func(device.Queue) error
	// start and end are recorded around the step while tracing.
	start, end device.Event
}

// New allocates what the plan needs and prepares its steps. The plan must have
// passed plan.Verify.
func New(p *plan.Plan, devices []device.Device) (e *Executor, err error) {
	if len(devices) != len(p.Devices) {
		return nil, fmt.Errorf("the plan is for %d devices, got %d", len(p.Devices), len(devices))
	}
	e = &Executor{plan: p, devices: devices, queues: map[laneKey]device.Queue{}, kernels: map[programOn][]device.Kernel{}, joined: map[programOn]func(device.Queue) error{}, joinedUpdates: map[updateOn]func(device.Queue) error{}, updateKernels: map[string]device.Kernel{}, transfers: map[Route]*Transfers{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.Close())
		}
	}()
	if err := e.allocate(); err != nil {
		return e, fmt.Errorf("starting the plan for %s: %w", p.Model, err)
	}
	for d, dev := range devices {
		for _, l := range plan.Lanes {
			q, err := dev.Queue(string(l))
			if err != nil {
				return e, fmt.Errorf("opening the %s queue of %s: %w", l, p.Devices[d].Name, err)
			}
			e.queues[laneKey{d, l}] = q
			e.opened = append(e.opened, q)
		}
	}
	if err := e.prepare(); err != nil {
		return e, fmt.Errorf("preparing the plan for %s: %w", p.Model, err)
	}
	return e, nil
}

// allocate reserves the arenas: all memory the plan will ever use.
func (e *Executor) allocate() error {
	for _, a := range e.plan.Arenas {
		dev := e.devices[a.Device]
		alloc := dev.HostAlloc
		if a.Tier == plan.OnDevice || a.Tier == plan.OnDisk {
			alloc = dev.Alloc
		}
		m, err := alloc(a.Bytes)
		if err != nil {
			return fmt.Errorf("%s arena of %d bytes: %w", a.Name, a.Bytes, err)
		}
		e.arenas = append(e.arenas, m)
	}
	return nil
}

// prepare makes the launches and events of all steps.
func (e *Executor) prepare() error {
	e.instructions = make([]prepared, len(e.plan.Instructions))
	for i := range e.plan.Instructions {
		s := &e.plan.Instructions[i]
		if s.Verb == plan.Free {
			continue
		}
		issue, err := e.prepareInstruction(s)
		if err != nil {
			return fmt.Errorf("step %d, %s: %w", i, s.Verb, err)
		}
		p := &e.instructions[i]
		e.deferred = e.deferred || s.Deferred
		p.queue, p.issue = e.queues[laneKey{s.Device, s.Lane}], issue
		if p.queue == nil {
			return fmt.Errorf("step %d, %s: no lane %q", i, s.Verb, s.Lane)
		}
	}
	e.ends = laneEnds(e.plan)
	if err := e.prepareEvents(); err != nil {
		return err
	}
	e.counters.PeakLive, e.result = e.liveMost(), resultType(e.plan)
	e.limits = batchLimits(e.plan)
	return nil
}

// prepareEvents gives events to the steps that somebody waits for.
func (e *Executor) prepareEvents() (err error) {
	done, last := make([]bool, len(e.instructions)), make([]bool, len(e.instructions))
	for i := range e.plan.Instructions {
		for _, a := range e.plan.Instructions[i].After {
			done[a] = true
		}
		for _, a := range e.plan.Instructions[i].AfterPrevious {
			done[a], last[a] = true, true
		}
	}
	for _, end := range e.ends {
		if end.carriesOver && end.until >= 0 {
			done[end.until] = true
		}
	}
	for i := range e.instructions {
		dev := e.devices[e.plan.Instructions[i].Device]
		if done[i] && err == nil {
			e.instructions[i].done, err = dev.Event()
		}
		if last[i] && err == nil {
			e.instructions[i].last, err = dev.Event()
		}
	}
	return err
}

func (e *Executor) prepareInstruction(s *plan.Instruction) (func(device.Queue) error, error) {
	switch s.Verb {
	case plan.Move:
		return e.prepareMove(s)
	case plan.Run:
		return e.prepareRun(s)
	case plan.Reduce:
		return e.prepareReduce(s)
	case plan.Update:
		return e.prepareUpdate(s)
	}
	return nil, fmt.Errorf("unknown verb")
}

// buffer of the plan as memory.
func (e *Executor) buffer(id int) device.Buffer {
	b := e.plan.Buffers[id]
	return device.Buffer{Memory: e.arenas[b.Arena], Offset: b.Offset, Bytes: b.Bytes}
}

// programOn is a program on a device.
type programOn struct{ program, device int }

// programKernels prepares the kernels of a program once per device.
func (e *Executor) programKernels(program, dev int) ([]device.Kernel, error) {
	key := programOn{program, dev}
	if list, ok := e.kernels[key]; ok {
		return list, nil
	}
	g := e.plan.Programs[program].Graph
	list := make([]device.Kernel, len(g.Nodes))
	for i, n := range g.Nodes {
		k, err := e.devices[dev].Kernel(g.Call(n))
		if err != nil {
			return nil, fmt.Errorf("node %d of %s: %w", i, g.Name, err)
		}
		list[i] = k
	}
	e.kernels[key] = list
	return list, nil
}

// Counters since the executor was made.
func (e *Executor) Counters() Counters { return e.counters }

// Plan that is carried out.
func (e *Executor) Plan() *plan.Plan { return e.plan }

// CloseWith lets Close also close what the executor alone uses, such as a device
// opened for it, once its own memory is free.
func (e *Executor) CloseWith(c io.Closer) { e.with = append(e.with, c) }

// Close waits for the queues and frees the arenas; the devices stay open.
func (e *Executor) Close() error {
	var errs []error
	if e.graph.graph != nil {
		errs = append(errs, e.Sync(), e.graph.graph.Close())
		e.graph.graph = nil
	}
	for _, q := range e.opened {
		errs = append(errs, q.Sync(), q.Close())
	}
	for _, m := range append(e.arenas, e.staging) {
		if m != nil {
			errs = append(errs, m.Free())
		}
	}
	for _, c := range e.with {
		errs = append(errs, c.Close())
	}
	e.opened, e.arenas, e.staging, e.with = nil, nil, nil, nil
	return errors.Join(errs...)
}
