package spillway

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"spillway/dtype"
	"spillway/executor"
	"spillway/plan"
	"spillway/store"
)

// durable keeps a training on its disk from iteration to iteration. What the plan has
// on disk is kept where it is; everything else that is trained, and the state of the
// loop, is copied to a tape on the same disk before each commit.
type durable struct {
	disk *store.Disk
	e    *executor.Executor
	tape *tape
	rest []executor.Tensor // trained, and not on disk

	last  int64 // the iteration committed, or none
	begun bool  // something changes since
	state []byte
}

// newDurable goes on from what the disk was recovered to; last is none for nothing.
func newDurable(disk *store.Disk, e *executor.Executor, last int64) (*durable, error) {
	d := &durable{disk: disk, e: e, last: last, rest: elsewhere(e)}
	var err error
	if d.tape, err = newTape(disk, tapeBytes(e.Plan())); err != nil {
		return nil, err
	}
	if last >= 0 {
		err = d.recover()
	} else {
		err = d.Begin(0) // loading weights changes them
	}
	if err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

// stateRoom is how long the state of the loop may be, in bytes, with its length.
const stateRoom = 64 << 10

// tapeBytes is what the state of the loop and all that is trained and rests elsewhere
// than on disk take.
func tapeBytes(p *plan.Plan) int64 {
	bytes := int64(stateRoom)
	for _, s := range p.Slabs {
		if !changes(p, s) {
			continue
		}
		weight, master, states := s.Weight, s.Pieces[0].Master, s.Pieces[0].State
		for _, q := range s.Params {
			if elsewhereThanDisk(p, weight) {
				bytes += q.Type.Bytes()
			}
			if elsewhereThanDisk(p, master) {
				bytes += dtype.F32.Bytes(q.Type.Shape.Elements())
			}
			for _, state := range q.States {
				if elsewhereThanDisk(p, states) {
					bytes += state.Bytes()
				}
			}
		}
	}
	return bytes
}

// elsewhereThanDisk says whether a home, if there is one, is in memory.
func elsewhereThanDisk(p *plan.Plan, home int) bool {
	return home >= 0 && p.TierOf(home) != plan.OnDisk
}

// elsewhere lists the trained tensors that are not on disk.
func elsewhere(e *executor.Executor) (list []executor.Tensor) {
	p, slab := e.Plan(), map[string]plan.Slab{}
	for _, s := range p.Slabs {
		for _, q := range s.Params {
			slab[q.Name] = s
		}
	}
	for _, t := range append(e.Weights(), e.States()...) {
		s := slab[t.Param.Name]
		if changes(p, s) && p.TierOf(homeOf(t, s)) != plan.OnDisk {
			list = append(list, t)
		}
	}
	return list
}

// homeOf is a buffer that a tensor rests in. All pieces of a slab rest in one tier.
func homeOf(t executor.Tensor, s plan.Slab) int {
	switch t.State {
	case "":
		return s.Weight
	case executor.Master:
		return s.Pieces[0].Master
	}
	return s.Pieces[0].State
}

// Recovered is what the disk held when it was opened.
func (d *durable) Recovered() (iteration int64, state []byte, ok bool) {
	return d.last, d.state, d.last >= 0
}

// Begin lets the state change. An iteration that does not follow the last commit comes
// from a checkpoint: everything is written anew.
func (d *durable) Begin(iteration int64) error {
	if d.begun {
		return nil
	}
	next := d.last + 1
	if iteration != next {
		if err := d.disk.Discard(); err != nil {
			return err
		}
		next = 0
	}
	d.begun = true
	return d.disk.Begin(next)
}

// Commit makes the state that of an iteration.
func (d *durable) Commit(iteration int64, state []byte) error {
	if err := d.e.Flush(); err != nil {
		return err
	}
	if err := d.record(state); err != nil {
		return fmt.Errorf("keeping iteration %d on disk: %w", iteration, err)
	}
	if err := d.disk.Commit(iteration); err != nil {
		return err
	}
	d.last, d.begun = iteration, false
	return nil
}

// record writes the tape.
func (d *durable) record(state []byte) error {
	if len(state) > stateRoom-8 {
		return fmt.Errorf("the state of the loop, with the position in the data, has %d bytes; there is room for %d", len(state), stateRoom-8)
	}
	head := make([]byte, stateRoom)
	binary.LittleEndian.PutUint64(head, uint64(len(state)))
	copy(head[8:], state)
	w := d.tape.writer()
	if _, err := w.Write(head); err != nil {
		return err
	}
	for _, t := range d.rest {
		if err := d.e.Read(t, func(_ int64, chunk []byte) error { _, err := w.Write(chunk); return err }); err != nil {
			return err
		}
	}
	return w.Flush()
}

// recover reads the tape.
func (d *durable) recover() error {
	head, r := make([]byte, stateRoom), d.tape.reader()
	if _, err := io.ReadFull(r, head); err != nil {
		return err
	}
	n := binary.LittleEndian.Uint64(head)
	if n > stateRoom-8 {
		return fmt.Errorf("the state of the loop on disk has %d bytes; there is room for %d", n, stateRoom-8)
	}
	d.state = head[8 : 8+n]
	for _, t := range d.rest {
		if err := d.e.Write(t, func(_ int64, chunk []byte) error { _, err := io.ReadFull(r, chunk); return err }); err != nil {
			return err
		}
	}
	return nil
}

// recovered says whether the executor holds an earlier state; none is kept by nil.
func (d *durable) recovered() bool { return d != nil && d.last >= 0 }

func (d *durable) close() error { return d.tape.close() }
