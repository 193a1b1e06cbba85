package spillway

import (
	"errors"
	"path/filepath"

	"spillway/internal/vfs"
	"spillway/optim"
	"spillway/store"
)

// A policy on states changes what a training keeps on disk, while it may be killed at any
// instant. So states of the new types begin in a folder of their own inside the disk's, and
// the old state is forgotten once an iteration is committed there. Whoever goes on looks into
// the inner folder first.

// compressedName is the folder of states that a policy has compressed.
const compressedName = "compressed"

func compressedDir(disk string) string { return filepath.Join(disk, compressedName) }

// furthest is the options of a training on disk whose policy had begun before it ended.
func (o Options) furthest() Options {
	if o.Disk == "" || o.StatePolicy == (optim.Policy{}) || o.compressed || !o.trains() {
		return o
	}
	if _, err := store.LastCommit(compressedDir(o.Disk)); err == nil {
		return o.compressing()
	}
	return o
}

// compressing is the options once the policy has begun.
func (o Options) compressing() Options {
	if o.compressed = true; o.Disk != "" {
		o.Disk = compressedDir(o.Disk)
	}
	return o
}

// keeper keeps a training on the disk of its plan, which may change.
type keeper struct {
	now    *durable // nil where nothing rests on disk any more
	before string   // the folder of an older state, to be forgotten after the next commit
}

// newKeeper goes on with what a plan's disk keeps.
func newKeeper(now *durable, dir string) *keeper {
	k := &keeper{now: now}
	if _, err := store.LastCommit(filepath.Dir(dir)); filepath.Base(dir) == compressedName && err == nil {
		k.before = filepath.Dir(dir) // a kill came before it was forgotten
	}
	return k
}

// Recovered implements train.Durable.
func (k *keeper) Recovered() (iteration int64, state []byte, ok bool) {
	if k.now == nil {
		return none, nil, false
	}
	return k.now.Recovered()
}

// Begin implements train.Durable.
func (k *keeper) Begin(iteration int64) error {
	if k.now == nil {
		return nil
	}
	return k.now.Begin(iteration)
}

// Commit implements train.Durable.
func (k *keeper) Commit(iteration int64, state []byte) error {
	if k.now == nil {
		return nil
	}
	if err := k.now.Commit(iteration, state); err != nil {
		return err
	}
	return k.forget()
}

// moved says that the state is to be kept elsewhere from now on.
func (k *keeper) moved(to *durable, from string) { k.now, k.before = to, from }

// forget removes an older state.
func (k *keeper) forget() (err error) {
	if k.before == "" {
		return nil
	}
	disk, err := store.Open(store.Options{Dir: k.before})
	if err != nil {
		return err
	}
	if _, err = disk.Recover(); err == nil {
		err = disk.Discard()
	}
	if errors.Is(err, store.ErrNoCommit) {
		err = nil
	}
	if err = errors.Join(err, closeDisk(disk, k.before)); err == nil {
		k.before = ""
	}
	return err
}

// discard removes all state: a checkpoint has it.
func (k *keeper) discard() error {
	err := k.forget()
	if k.now != nil {
		err = errors.Join(err, k.now.disk.Discard())
	}
	return err
}

// removeInner removes the folder of compressed states when it is empty.
func removeInner(dir string) error {
	names, err := vfs.OS.List(dir)
	if filepath.Base(dir) != compressedName || err != nil || len(names) > 0 {
		return nil // it is the user's, or there is something in it
	}
	return vfs.OS.Remove(dir)
}
