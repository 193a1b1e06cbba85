package planner

import (
	"spillway/plan"
	"spillway/planner/strategy"
)

// waits is how many bytes of a block wait for its backward, per micro-batch: its input
// and what it keeps, as far as the backward reads them.
func (b *blueprint) waitingBytes(block int, level strategy.Level) (int64, error) {
	last := block == len(b.model.Blocks)-1
	if !b.training() || last || block < b.trained {
		return 0, nil
	}
	key := b.costKey(block, level)
	if n, ok := b.savedBytes[key]; ok {
		return n, nil
	}
	l, err := b.program(block, backward, level, b.allFresh(block))
	if err != nil {
		return 0, err
	}
	var sum int64
	for i, need := range l.binds {
		switch need.Region {
		case plan.InCarry:
			sum += l.bytes[i]
		case plan.InSaved:
			sum += l.savedBytes
		}
	}
	b.savedBytes[key] = sum
	return sum, nil
}

// countTurn adds what the devices and the host hold besides homes when the forward of
// the last block begins to turn into the backward: what waits of all blocks, and what
// the last block runs with. It returns what waits on the host in all.
func (e *emitter) countTurnaround() (spilled int64, err error) {
	micros, last := e.microsAtOnce(), len(e.b.model.Blocks)-1
	for i := range last {
		each, err := e.b.waitingBytes(i, e.c.Level[i])
		if err != nil {
			return 0, err
		}
		if e.c.OffloadedActivations[i] {
			spilled += each * int64(e.b.goal.MicroBatches)
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
	ph, fresh := forwardOnly, []bool(nil)
	if e.b.training() {
		ph, fresh = both, e.b.allFresh(block)
	}
	l, err := e.b.program(block, ph, strategy.SaveAll, fresh)
	if err != nil {
		return err
	}
	for d := range e.on {
		if e.c.Split != nil && e.c.Split[block] != d {
			continue
		}
		e.p.Arenas[d].Bytes += l.Frame
		for _, k := range e.b.slabs.of[block] {
			if e.c.Streamed[k] {
				e.p.Arenas[d].Bytes += e.b.slabs.list[k].WeightBytes
			}
			if e.b.training() {
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

// allFresh marks all gradients of a block as written for the first time.
func (b *blueprint) allFresh(block int) []bool {
	fresh := make([]bool, len(b.model.Blocks[block].Params))
	for i := range fresh {
		fresh[i] = true
	}
	return fresh
}
