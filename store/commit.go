package store

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"spillway/internal/vfs"
)

// ErrNoCommit says that no state was committed.
var ErrNoCommit = errors.New("no state was committed")

// Recover finds the state of the last commit and returns its iteration. Allocations
// made afterwards, in the same order and of the same sizes, hold it. ErrNoCommit where
// there is none: begin with iteration 0. It comes before the first Alloc.
func (d *Disk) Recover() (iteration int64, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.live) > 0 {
		return none, fmt.Errorf("disk: recovering with %d allocations already made", len(d.live))
	}
	m, err := readManifest(d.disk, d.path(manifestName))
	if err != nil {
		return none, fmt.Errorf("disk: recovering: %w", err)
	}
	d.committed, d.unclaimed, d.inDoubt, d.begun = m, false, nil, none
	return m.Iteration, d.clean()
}

// Discard forgets the committed state: its files are removed, now or when their
// allocation is freed.
func (d *Disk) Discard() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.remove(manifestName); err != nil {
		return fmt.Errorf("disk: discarding: %w", err)
	}
	if err := d.disk.SyncDir(d.dir); err != nil {
		return fmt.Errorf("disk: discarding: %w", err)
	}
	d.committed, d.unclaimed, d.inDoubt, d.begun = nil, false, nil, none
	for _, m := range d.live {
		clear(m.pages.committed.where)
	}
	return d.clean()
}

// Begin says that an iteration will change journaled bytes. It must be the one after the
// last commit, and nothing may have changed since: so a state is never mixed from two
// iterations. Iteration 0 fills the allocations for the first time.
func (d *Disk) Begin(iteration int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	last := d.iteration()
	switch {
	case d.inDoubt != nil:
		return d.inDoubt
	case d.begun != none:
		return fmt.Errorf("disk: beginning iteration %d in the middle of %d: commit it or roll back", iteration, d.begun)
	case iteration != last+1:
		return fmt.Errorf("disk: beginning iteration %d, the disk at %s holds %d: go on with %d or restore a checkpoint", iteration, d.dir, last, last+1)
	}
	for _, m := range d.live {
		if m.pages.changed.Load() {
			return fmt.Errorf("disk: beginning iteration %d: %s was changed after the commit of %d: roll back first", iteration, m.pages.name, last)
		}
	}
	d.begun = iteration
	return nil
}

// iteration is that of the last commit.
func (d *Disk) iteration() int64 {
	if d.committed == nil {
		return none
	}
	return d.committed.Iteration
}

// Commit makes all journaled bytes durable, as the state after an iteration: the one begun
// or, where several were run since, the last of them. Queues must have been synced.
// After an error the state of the commit before still counts; roll back.
func (d *Disk) Commit(iteration int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.inDoubt != nil:
		return d.inDoubt
	case d.begun == none || iteration < d.begun:
		return fmt.Errorf("disk: committing iteration %d, begun is %d (%d is none)", iteration, d.begun, none)
	}
	release := d.lockPages()
	defer release()
	m := &manifest{Iteration: iteration, PageBytes: pageBytes}
	for _, number := range slices.Sorted(maps.Keys(d.live)) {
		live := d.live[number]
		if err := live.flush(); err != nil {
			return fmt.Errorf("disk: committing iteration %d: %w", iteration, err)
		}
		if live.layout.journaled > 0 {
			m.Memories = append(m.Memories, commitOf(live))
		}
	}
	if err := d.publish(m); err != nil {
		return fmt.Errorf("disk: committing iteration %d: %w", iteration, err)
	}
	d.committed, d.begun = m, none
	for _, c := range m.Memories {
		p := d.live[c.Number].pages
		p.committed.copyFrom(p.now)
		p.changed.Store(false)
		c.versions = p.committed
	}
	return d.clean()
}

// lockPages lets nobody copy pages until release.
func (d *Disk) lockPages() (release func()) {
	for _, m := range d.live {
		m.pages.locks.lock(0, math.MaxInt64, true)
	}
	return func() {
		for _, m := range d.live {
			m.pages.locks.unlock(0, math.MaxInt64)
		}
	}
}

// flush makes what was written durable. After a write or sync that failed nobody
// knows what is on disk.
func (m *memory) flush() error {
	if m.pages.broken.Load() {
		return fmt.Errorf("a write to %s failed: roll back and run the iteration again", m.pages.name)
	}
	if m.pages.file == nil {
		return nil
	}
	if err := m.pages.file.Sync(); err != nil {
		m.pages.broken.Store(true)
		return err
	}
	return nil
}

// publish replaces the manifest. Where it is in doubt which manifest will be found later,
// nothing that one of them names may be touched any more.
func (d *Disk) publish(m *manifest) error {
	err := vfs.Replace(d.disk, d.path(manifestName), m.write)
	if err == nil || !errors.Is(err, vfs.ErrInDoubt) {
		return err
	}
	d.inDoubt = fmt.Errorf("disk: the commit of iteration %d may or may not be at %s: open the disk again and recover: %w", m.Iteration, d.dir, err)
	for _, m := range d.live {
		m.pages.frozen.Store(true)
	}
	return err
}

// Rollback forgets what was written since the last commit, in journaled regions, and ends
// the iteration begun. Queues must have been synced.
func (d *Disk) Rollback() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.inDoubt != nil {
		return d.inDoubt
	}
	release := d.lockPages()
	defer release()
	for _, m := range d.live {
		m.pages.now.copyFrom(m.pages.committed)
		m.pages.changed.Store(false)
		m.pages.broken.Store(false)
	}
	d.begun = none
	return nil
}
