package cpu

import (
	"fmt"
	"sync"

	"spillway/device"
	"spillway/device/cpu/kernel"
	"spillway/op"
)

// Program is a prepared call: the scratch memory it needs, in bytes, and what to run. It may
// hold state between launches, so one launch runs at a time.
type Program struct {
	Workspace int64
	Run       func(p *kernel.Pool, l *device.Launch)
}

// preparedKernel is a call ready to run.
type preparedKernel struct {
	device  *Device
	call    op.Call
	program Program
	ids     *op.IDs // what is looked at before each launch; nil for none
	running sync.Mutex
}

// Workspace is the scratch memory a launch needs, in bytes.
func (t *preparedKernel) Workspace() int64 { return t.program.Workspace }

// badID is what a kernel panics with that met an id which names nothing: one of an operand, at a place.
type badID struct{ operand, place int }

// idsBefore are the ids that are looked at before each launch of a call: those of a gather and its gradient, which are as many as
// the numbers that it moves, the kernels look at themselves.
func idsBefore(c op.Call) *op.IDs {
	ids, has := c.IDs()
	if !has || c.Kind == op.Gather || c.Kind == op.GatherGrad {
		return nil
	}
	return &ids
}

// refused is the error of an id that names nothing.
func (t *preparedKernel) refused(l *device.Launch, bad badID) error {
	known, _ := t.call.IDs()
	what := l.Label
	if what == "" {
		what = t.call.String()
	}
	return fmt.Errorf("%s: index out of range: place %d of its ids %v holds %d, want 0 to %d", what, bad.place, t.call.In[bad.operand].Shape, ids(l, bad.operand)[bad.place], known.Count-1)
}

// run runs the call. A panic in a kernel is a defect of the kernel; it is reported as an
// error with the call.
func (t *preparedKernel) run(l *device.Launch) (err error) {
	t.running.Lock()
	defer t.running.Unlock()
	defer func() {
		r := recover()
		if bad, is := r.(badID); is {
			err = t.refused(l, bad)
		} else if r != nil {
			err = fmt.Errorf("cpu: %v failed: %v", t.call, r)
		}
	}()
	if t.ids != nil {
		if place := t.ids.First(ids(l, t.ids.Operand)); place >= 0 {
			return t.refused(l, badID{t.ids.Operand, place})
		}
	}
	t.program.Run(t.device.pool, l)
	return nil
}

// rows cuts n items into pieces of step and calls do for each, with the number of the worker.
// do is set once, when the program is made.
type rows struct {
	n, step int
	do      func(worker, from, to int)
}

// Run does one piece.
func (r *rows) Run(worker, piece int) {
	from := piece * r.step
	r.do(worker, from, min(from+r.step, r.n))
}

func (r *rows) pieces() int { return (r.n + r.step - 1) / r.step }

// start runs all pieces on the pool.
func (r *rows) start(p *kernel.Pool) { p.Launch(r.pieces(), r) }

// program runs all pieces after set has taken the operands of a launch. It needs a workspace
// of so many bytes.
func (r *rows) program(workspace int64, set func(l *device.Launch)) Program {
	return Program{Workspace: workspace, Run: func(p *kernel.Pool, l *device.Launch) {
		set(l)
		r.start(p)
	}}
}

// grain is how many elements a piece of elementwise work has: enough to be worth
// scheduling, few enough to stay in the cache.
const grain = 16 << 10

// rowsOf cuts n rows of width elements into pieces of about grain elements.
func rowsOf(n, width int64, do func(worker, from, to int)) *rows {
	return &rows{n: int(n), step: int(max(1, grain/max(width, 1))), do: do}
}

// runsOf cuts n elements of memory-bound work into runs of several consecutive grains, as
// long as each worker still gets a few runs: memory is read faster in longer sequences. do
// gets a grain at a time.
func runsOf(n int64, workers int, do func(worker, from, to int)) *rows {
	const longest, each = 4, 8 // grains a piece has, pieces a worker gets
	grains := min(max(1, n/int64(grain*workers*each)), longest)
	return &rows{n: int(n), step: int(grains) * grain, do: func(worker, from, to int) {
		for i := from; i < to; i += grain {
			do(worker, i, min(i+grain, to))
		}
	}}
}
