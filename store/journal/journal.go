// Package journal keeps a training run on disk from iteration to iteration, so that a
// run killed at any instant goes on from the last iteration that was committed.
//
// What a plan stores on disk is journaled where it is: package store writes every page
// twice and a commit says which of the two counts. A journal adds what is trained and
// stored elsewhere, on devices or on the host, and the state of the training loop. It
// copies both to a tape, which is one more allocation on the same disk, before each
// commit. So one commit covers everything.
//
// The folder of a journal holds:
//
//	arena-N.pages and the manifest    the files of package store; the tape is one of the arenas
//	disk-plan.json                    the plan that the files are laid out for
//	compressed/                       a journal of its own, once a policy has compressed optimizer states
//	.evaluation/                      scratch files of an evaluation next to the run
//
// Compressing states changes the layout, so they begin in the folder inside. The outer
// state is removed once an iteration is committed there: until then a kill leaves it.
package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"spillway/store"
)

// Tensors is what a run trains and does not store on disk: whoever holds it reads and
// writes all of it, always in the same order.
type Tensors interface {
	// Flush completes what the last iteration has deferred.
	Flush() error
	// Read passes the bytes on, chunk by chunk.
	Read(use func(chunk []byte) error) error
	// Write asks for the bytes, chunk by chunk.
	Write(fill func(chunk []byte) error) error
}

// stateBytes is the space for the state of the training loop on a tape, its length
// included.
const stateBytes = 64 << 10

// TapeBytes is the size of a tape for tensors of so many bytes.
func TapeBytes(tensors int64) int64 { return stateBytes + tensors }

// None is the iteration of a disk without a commit.
const None = int64(-1)

// Recover brings a disk to its last commit and returns the iteration, or None. It comes
// before anything is allocated on the disk.
func Recover(disk *store.Disk) (last int64, err error) {
	if last, err = disk.Recover(); errors.Is(err, store.ErrNoCommit) {
		return None, nil
	}
	return last, err
}

// Journal makes iterations durable. It is for one goroutine.
type Journal struct {
	disk    *store.Disk // nil where the plan stores nothing on disk any more
	tensors Tensors
	tape    *tape

	last  int64  // the iteration committed, or None
	begun bool   // something has changed since
	state []byte // of the loop, as it was recovered

	older string // a folder whose state is removed after the next commit; "" for none
}

// New continues a disk in a folder that was recovered to an iteration, or begins anew
// after None. The tape has so many bytes, from TapeBytes.
func New(disk *store.Disk, dir string, last, bytes int64, t Tensors) (*Journal, error) {
	j := &Journal{disk: disk, tensors: t, last: last}
	if _, err := store.LastCommit(filepath.Dir(dir)); filepath.Base(dir) == compressedName && err == nil {
		j.older = filepath.Dir(dir) // a kill came before it was removed
	}
	var err error
	if j.tape, err = newTape(disk, bytes); err != nil {
		return nil, err
	}
	if j.last == None {
		err = j.Begin(0) // loading weights changes them
	} else {
		err = j.recover()
	}
	if err != nil {
		return nil, errors.Join(err, j.Close())
	}
	return j, nil
}

// Replaces says that the journal, which may be nil for a plan that stores nothing on
// disk, takes the place of the one in an older folder.
func (j *Journal) Replaces(older string) *Journal {
	if j == nil {
		j = &Journal{last: None}
	}
	j.older = older
	return j
}

// Recovered is the iteration whose weights and optimizer states were found on disk, and
// the state of the loop committed with them; false where there was none.
func (j *Journal) Recovered() (iteration int64, state []byte, ok bool) {
	if j == nil || j.last == None {
		return None, nil, false
	}
	return j.last, j.state, true
}

// Begin lets weights and states become those of an iteration. Several may begin before
// a commit. An iteration that does not follow the last commit comes from a checkpoint:
// everything is then written anew.
func (j *Journal) Begin(iteration int64) error {
	if j.disk == nil || j.begun {
		return nil
	}
	next := j.last + 1
	if iteration != next {
		if err := j.disk.Discard(); err != nil {
			return err
		}
		next = 0
	}
	j.begun = true
	return j.disk.Begin(next)
}

// Commit makes weights and states durable as those of an iteration, with the state of
// the loop.
func (j *Journal) Commit(iteration int64, state []byte) error {
	if j.disk == nil {
		return nil
	}
	if err := j.tensors.Flush(); err != nil {
		return err
	}
	if err := j.record(state); err != nil {
		return fmt.Errorf("journaling iteration %d: %w", iteration, err)
	}
	if err := j.disk.Commit(iteration); err != nil {
		return err
	}
	j.last, j.begun = iteration, false
	return j.removeOlder()
}

// record writes the tape.
func (j *Journal) record(state []byte) error {
	if len(state) > stateBytes-8 {
		return fmt.Errorf("the state of the loop, with the position in the data, has %d bytes, the journal has space for %d", len(state), stateBytes-8)
	}
	head := make([]byte, stateBytes)
	binary.LittleEndian.PutUint64(head, uint64(len(state)))
	copy(head[8:], state)
	w := &tapeWriter{tape: j.tape}
	if _, err := w.Write(head); err != nil {
		return err
	}
	if err := j.tensors.Read(func(chunk []byte) error { _, err := w.Write(chunk); return err }); err != nil {
		return err
	}
	return w.Flush()
}

// recover reads the tape.
func (j *Journal) recover() error {
	head, r := make([]byte, stateBytes), &tapeReader{tape: j.tape}
	if _, err := io.ReadFull(r, head); err != nil {
		return err
	}
	n := binary.LittleEndian.Uint64(head)
	if n > stateBytes-8 {
		return fmt.Errorf("the state of the loop in the journal has %d bytes, there is space for %d: it is damaged", n, stateBytes-8)
	}
	j.state = head[8 : 8+n]
	return j.tensors.Write(func(chunk []byte) error { _, err := io.ReadFull(r, chunk); return err })
}

// removeOlder removes the state that this one has replaced.
func (j *Journal) removeOlder() error {
	if j.older == "" {
		return nil
	}
	disk, err := store.Open(store.Options{Dir: j.older})
	if err != nil {
		return err
	}
	if _, err = disk.Recover(); err == nil {
		err = disk.Discard()
	}
	if errors.Is(err, store.ErrNoCommit) {
		err = nil
	}
	if err = errors.Join(err, CloseDisk(disk, j.older)); err == nil {
		j.older = ""
	}
	return err
}

// Discard removes all state: a checkpoint has it.
func (j *Journal) Discard() error {
	err := j.removeOlder()
	if j.disk != nil {
		err = errors.Join(err, j.disk.Discard())
	}
	return err
}

// Close frees the tape. The disk is the caller's.
func (j *Journal) Close() error {
	if j == nil || j.tape == nil {
		return nil
	}
	return j.tape.close()
}
