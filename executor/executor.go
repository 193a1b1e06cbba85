// Package executor carries out plans. It allocates the arenas a plan names, once,
// prepares every launch, and then runs iterations without allocating anything. It
// decides nothing: any sound plan, also a hand-written one, does what it says.
//
// It has three parts:
//
//	compile  a plan becomes prepared launches: compile.go, and a file per verb (move.go,
//	         run.go, reduce.go, update.go; a free has nothing to do, since memory is
//	         the plan's)
//	run      iterate.go issues them; carryover.go, deferred.go and graph.go are about
//	         iterations that overlap, updates that come later, and captured graphs
//	state    memory.go holds the arenas, tensor.go and state.go read and write weights
//	         and optimizer states in them, batch.go batches and results
package executor

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"spillway/device"
	"spillway/plan"
)

// Executor is a plan on its devices, ready to run.
type Executor struct {
	runner
	batch  batch
	caches map[string][]cacheTensor // see CopyPage; nil until needed
}

// New allocates what the plan needs and prepares its instructions. The plan must have
// passed plan.Verify.
func New(p *plan.Plan, devices []device.Device) (*Executor, error) {
	ids, err := idChecks(p)
	if err != nil {
		return nil, err
	}
	e, err := NewTimed(p, devices, nil)
	if err == nil {
		e.batch.ids, e.tally.PeakLive = ids, p.PeakLive()
	}
	return e, err
}

// NewTimed is New for devices without memory, where only time passes: a batch has no ids there that could be wrong. Finding out
// which ops read them takes a third of the time of a forecast. What was joined for other plans of the same programs and devices
// is used again; nil is nothing.
func NewTimed(p *plan.Plan, devices []device.Device, joined *Joined) (e *Executor, err error) {
	if joined == nil {
		joined = NewJoined()
	}
	if err := runnable(p, devices); err != nil {
		return nil, err
	}
	e = &Executor{runner: runner{tally: &tally{routes: map[Route]*Transfers{}}, phases: map[string]*program{}}, batch: batch{result: resultType(p)}}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.Close())
		}
	}()
	if e.memory, err = newMemory(p, devices); err != nil {
		return e, fmt.Errorf("starting the plan for %s: %w", p.Model, err)
	}
	c := &compiler{memory: e.memory, tally: e.tally, kernels: map[programOn][]device.Kernel{}, updates: map[string]device.Kernel{},
		joined: map[programOn]func(device.Queue) error{}, joinedUpdates: map[updateOn]func(device.Queue) error{}, known: joined}
	if e.main, err = c.compile(p); err != nil {
		return e, fmt.Errorf("preparing the plan for %s: %w", p.Model, err)
	}
	for _, ph := range p.Phases {
		view, err := p.Phase(ph.Name)
		if err == nil {
			e.phases[ph.Name], err = c.compile(view)
		}
		if err != nil {
			return e, fmt.Errorf("preparing phase %s of the plan for %s: %w", ph.Name, p.Model, err)
		}
	}
	return e, nil
}

// runnable refuses plans that this executor cannot carry out on these devices.
func runnable(p *plan.Plan, devices []device.Device) error {
	if len(devices) != len(p.Devices) {
		return fmt.Errorf("the plan is for %d devices, got %d", len(p.Devices), len(devices))
	}
	for _, d := range p.Devices {
		if d.Rank != 0 {
			return fmt.Errorf("the plan has %s on rank %d; this process is rank 0 and runs no others", d.Name, d.Rank)
		}
	}
	for _, b := range p.Buffers {
		if b.Pages != nil { // caches are found through tables that kernels read themselves
			return fmt.Errorf("the plan finds buffer %s through a table; no kernel does yet", b.Name)
		}
	}
	return nil
}

// Counters since the executor was made.
func (e *Executor) Counters() Counters { return e.tally.Counters }

// Plan that is carried out.
func (e *Executor) Plan() *plan.Plan { return e.memory.plan }

// ArenaBytes is how many bytes of memory an arena of the plan really has.
func (e *Executor) ArenaBytes(arena int) int64 { return e.memory.arenas[arena].Size() }

// Close waits for the queues and frees the arenas; the devices stay open.
func (e *Executor) Close() error {
	if e.memory == nil {
		return nil
	}
	var errs []error
	for _, p := range slices.AppendSeq([]*program{e.main}, maps.Values(e.phases)) {
		if p != nil && p.graph.replay != nil {
			errs = append(errs, e.Sync(), p.graph.replay.Close())
			p.graph.replay = nil
		}
	}
	return errors.Join(append(errs, e.memory.close())...)
}
