package emit

import (
	"spillway/plan"
	"spillway/planner/layout"
	"spillway/planner/pass"
	"spillway/planner/strategy"
)

// Homes is what a plan takes at least, found without writing it.
type Homes struct {
	// Plan has devices, and arenas as large as homes and what waits for the backward; no
	// instructions.
	Plan      *plan.Plan
	State     OffDevice // optimizer state that is stored off the devices and comes to them
	Offloaded int64     // bytes of activations that wait on the host
}

// OffDevice are bytes that are not stored on a device, and how many of them on the disk.
type OffDevice struct{ All, OnDisk int64 }

// Add counts some more.
func (o *OffDevice) Add(bytes int64, onDisk bool) {
	o.All += bytes
	if onDisk {
		o.OnDisk += bytes
	}
}

// counter counts homes in their arenas instead of making them.
type counter struct {
	state        OffDevice
	updatedByCPU bool // the slab at hand is: its state stays where it is
}

func (n *counter) add(w *script, class plan.Class, arena int, bytes int64) {
	at := &w.p.Arenas[arena].Bytes
	*at = pass.AlignUp(*at, w.l.Site.Alignment) + bytes
	if arena >= w.host && !n.updatedByCPU && (class == plan.Master || class == plan.State) {
		n.state.Add(bytes, arena > w.host)
	}
}

// Homes counts what the plan of a choice takes at least.
func (w *Writer) Homes(c strategy.Choice) (Homes, error) {
	h := homes{script: newScript(w.l, w.l.Allowed(c))}
	h.counter = &counter{}
	if err := h.make(); err != nil {
		return Homes{}, err
	}
	offloaded, err := w.countTurnaround(&h)
	return Homes{h.p, h.counter.state, offloaded}, err
}

// countTurnaround adds what devices and host hold in addition to homes when the forward of
// the last block turns into the backward: what waits of all blocks, and what the last block
// runs with. It returns how many bytes wait on the host in all.
func (w *Writer) countTurnaround(h *homes) (offloaded int64, err error) {
	micros, last := microsAtOnce(w.l, h.c), len(w.l.Model.Blocks)-1
	for i := range last {
		each, err := w.waitingBytes(i, h.c.Level[i])
		if err != nil {
			return 0, err
		}
		if h.c.OffloadedActivations[i] {
			offloaded += each * int64(w.l.Goal.MicroBatches)
		}
		for d, n := range micros {
			if h.c.Split != nil && h.c.Split[i] != d {
				continue
			}
			if h.c.OffloadedActivations[i] {
				d = h.host
			}
			h.p.Arenas[d].Bytes += each * int64(n)
		}
	}
	return offloaded, w.countLast(h, last)
}

// countLast adds what the last block needs to run.
func (w *Writer) countLast(h *homes, block int) error {
	phase, fresh := layout.ForwardOnly, []bool(nil)
	if w.l.Training() {
		phase, fresh = layout.ForwardBackward, w.l.AllFresh(block)
	}
	program, err := w.l.Program(block, phase, strategy.SaveAll, fresh)
	if err != nil {
		return err
	}
	for d := range h.c.DeviceCount() {
		if h.c.Split != nil && h.c.Split[block] != d {
			continue
		}
		h.p.Arenas[d].Bytes += program.Frame
		for _, k := range w.l.Slabs.OfBlock[block] {
			if h.c.Streamed[k] {
				h.p.Arenas[d].Bytes += w.l.Slabs.List[k].WeightBytes
			}
			if w.l.Training() {
				h.p.Arenas[d].Bytes += w.l.GradBytes(k)
			}
		}
	}
	return nil
}

// waitingBytes is how many bytes of a block wait for its backward, per micro-batch: its
// input and what it saves, as far as the backward reads them.
func (w *Writer) waitingBytes(block int, level strategy.Level) (int64, error) {
	l := w.l
	if last := block == len(l.Model.Blocks)-1; !l.Training() || last || block < l.FirstTrained {
		return 0, nil
	}
	key := l.BlockKey(block, level)
	if n, ok := w.waiting[key]; ok {
		return n, nil
	}
	program, err := l.Program(block, layout.Backward, level, l.AllFresh(block))
	if err != nil {
		return 0, err
	}
	var sum int64
	for i, bind := range program.Binds {
		switch bind.Region {
		case plan.InCarry:
			sum += program.Bytes[i]
		case plan.InSaved:
			sum += program.SavedBytes
		}
	}
	w.waiting[key] = sum
	return sum, nil
}

// microsAtOnce is, by device, how many micro-batches have passed all blocks but the last
// when the first of them turns round, at least.
func microsAtOnce(l *layout.Layout, c strategy.Choice) []int {
	of := make([]int, c.DeviceCount())
	for d := range of {
		of[d] = 1
	}
	if !c.BreadthFirst || c.Pipeline {
		return of
	}
	for _, g := range (sequencer{l, c}).rounds()[0] {
		for d := range of {
			if g.device == d || g.device < 0 {
				of[d] = len(g.micros)
			}
		}
	}
	return of
}
