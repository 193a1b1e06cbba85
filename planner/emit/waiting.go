package emit

import (
	"spillway/plan"
	"spillway/planner/layout"
	"spillway/planner/strategy"
)

// waits is how many bytes of a block wait for its backward, per micro-batch: its input
// and what it keeps, as far as the backward reads them.
func (w *Writer) waitingBytes(block int, level strategy.Level) (int64, error) {
	b := w.l
	last := block == len(b.Model.Blocks)-1
	if !b.Training() || last || block < b.FirstTrained {
		return 0, nil
	}
	key := b.BlockKey(block, level)
	if n, ok := w.waiting[key]; ok {
		return n, nil
	}
	l, err := b.Program(block, layout.Backward, level, b.AllFresh(block))
	if err != nil {
		return 0, err
	}
	var sum int64
	for i, need := range l.Binds {
		switch need.Region {
		case plan.InCarry:
			sum += l.Bytes[i]
		case plan.InSaved:
			sum += l.SavedBytes
		}
	}
	w.waiting[key] = sum
	return sum, nil
}

// Homes is what a plan takes at least, found without writing it.
type Homes struct {
	// Plan has devices, and arenas that hold homes and what waits for the backward; no
	// buffers, no instructions.
	Plan      *plan.Plan
	State     OffDevice // optimizer state that is stored away from devices and comes to them
	Offloaded int64     // bytes of activations that wait on the host
}

// Homes counts what the plan of a choice takes at least.
func (w *Writer) Homes(c strategy.Choice) (h Homes, err error) {
	e := &emitter{l: w.l, c: w.l.Allowed(c), counting: true}
	e.start()
	if err := e.homes(); err != nil {
		return h, err
	}
	h.Offloaded, err = e.countTurnaround(w)
	h.Plan, h.State = e.p, e.state
	return h, err
}

// offDevice are bytes that are not stored on a device.
type OffDevice struct{ All, OnDisk int64 }

func (o *OffDevice) Add(bytes int64, onDisk bool) {
	o.All += bytes
	if onDisk {
		o.OnDisk += bytes
	}
}

// countTurn adds what the devices and the host hold besides homes when the forward of
// the last block begins to turn into the backward: what waits of all blocks, and what
// the last block runs with. It returns what waits on the host in all.
func (e *emitter) countTurnaround(w *Writer) (spilled int64, err error) {
	micros, last := e.microsAtOnce(), len(e.l.Model.Blocks)-1
	for i := range last {
		each, err := w.waitingBytes(i, e.c.Level[i])
		if err != nil {
			return 0, err
		}
		if e.c.OffloadedActivations[i] {
			spilled += each * int64(e.l.Goal.MicroBatches)
		}
		for d, n := range micros {
			if e.c.Split == nil || e.c.Split[i] == d {
				e.p.Arenas[e.turnaroundArena(d, i)].Bytes += each * int64(n)
			}
		}
	}
	return spilled, e.countLast(last)
}

// turnArena is where what waits for the backward of a block on a device does so.
func (e *emitter) turnaroundArena(d, block int) int {
	if e.c.OffloadedActivations[block] {
		return e.host
	}
	return d
}

// countLast adds what the last block needs to run.
func (e *emitter) countLast(block int) error {
	ph, fresh := layout.ForwardOnly, []bool(nil)
	if e.l.Training() {
		ph, fresh = layout.ForwardBackward, e.l.AllFresh(block)
	}
	l, err := e.l.Program(block, ph, strategy.SaveAll, fresh)
	if err != nil {
		return err
	}
	for d := range e.on {
		if e.c.Split != nil && e.c.Split[block] != d {
			continue
		}
		e.p.Arenas[d].Bytes += l.Frame
		for _, k := range e.l.Slabs.OfBlock[block] {
			if e.c.Streamed[k] {
				e.p.Arenas[d].Bytes += e.l.Slabs.List[k].WeightBytes
			}
			if e.l.Training() {
				e.p.Arenas[d].Bytes += e.gradBytes(k)
			}
		}
	}
	return nil
}

// microsAtOnce is, by device, how many micro-batches have passed all blocks but the
// last when the first of them turns round, at least.
func (e *emitter) microsAtOnce() []int {
	of := make([]int, e.c.DeviceCount())
	for d := range of {
		of[d] = 1
	}
	if !e.c.BreadthFirst || e.c.Pipeline {
		return of
	}
	for _, g := range e.rounds()[0] {
		for d := range of {
			if g.device == d || g.device < 0 {
				of[d] = len(g.micros)
			}
		}
	}
	return of
}
