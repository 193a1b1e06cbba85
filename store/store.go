// Package store is the disk as a device: memory that is stored in files, and queues that
// copy between it and host memory while everything else runs.
//
//	disk, err := store.Open(store.Options{Dir: "state", Regions: regions})
//	iteration, err := disk.Recover()      // or store.ErrNoCommit: begin anew
//	arena, err := disk.Alloc(bytes)       // the plan's arena of tier disk
//	disk.Begin(i); ...iterate...; disk.Commit(i)
//
// An allocation is made of regions, of three kinds. A region in place is a range of an
// existing file, such as a tensor of a safetensors file: it is read where it is, and never
// written. Scratch and journaled regions are in a file of the disk's own, in pages with a
// checksum that is verified whenever they are read; journaled ones survive a kill.
//
// # A kill at any instant
//
// Each journaled page has two places in the file, called generations. The first write of a
// page after a commit goes to the generation that is not committed. Commit makes what was
// written durable and then replaces one small file, the manifest, which says for each page
// which generation counts and what its checksum is. Whenever the process ends, the manifest
// names pages that nobody has touched since, so Recover finds the state of the last commit
// bit for bit. The price is twice the space of journaled regions, no further writes (each
// page is written once, only elsewhere), and per commit two syncs of files, one of a folder,
// and 5 bytes of manifest per page.
//
// # Memory
//
// Besides the allocations a disk takes 8 MiB of host memory per queue and 10 bytes
// per page of 64 KiB; HostBytes counts it. Nothing is allocated while copies run.
package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"sync"

	"spillway/device"
	"spillway/device/hostqueue"
	"spillway/internal/offheap"
	"spillway/internal/vfs"
	"spillway/op"
)

// deviceName of every disk.
const deviceName = "disk"

// Options of a disk.
type Options struct {
	// Dir holds the disk's files; it is made where it is missing. A second disk in the
	// same folder is refused with vfs.ErrLocked while the first is open.
	Dir string
	// Limit is the most bytes Alloc gives in total, those in place not counted; 0 is
	// half of what is free, since journaled bytes have two generations.
	Limit int64
	// Regions of the first allocation; none means that all of it is journaled.
	Regions []Region
	// Disk is where files are; nil is the real one.
	Disk vfs.FS
}

// Disk is a folder as a device. It computes nothing.
type Disk struct {
	dir     string
	disk    vfs.FS
	lock    io.Closer
	limit   int64
	regions []Region

	mu        sync.Mutex
	allocated int64 // bytes Alloc has given, those in place not counted
	live      map[int]*memory
	host      map[*hostMemory]bool
	queues    map[*queue]bool
	unclaimed bool      // a state is on disk that was neither recovered nor discarded
	committed *manifest // the last commit; nil for none
	begun     int64     // the iteration begun; none for none
	inDoubt   error     // a commit of which nobody knows whether it happened
}

// none is no iteration.
const none = -1

// Open opens a folder as a disk and removes what a killed process left there, except
// a committed state: Recover goes on from it, Discard forgets it.
func Open(o Options) (*Disk, error) {
	d := &Disk{
		dir: o.Dir, disk: o.Disk, limit: o.Limit, regions: o.Regions,
		live: map[int]*memory{}, host: map[*hostMemory]bool{}, queues: map[*queue]bool{}, begun: none,
	}
	if d.disk == nil {
		d.disk = vfs.OS
	}
	if err := d.open(); err != nil {
		if d.lock != nil {
			err = errors.Join(err, d.lock.Close())
		}
		return nil, fmt.Errorf("opening the disk at %s: %w", o.Dir, err)
	}
	return d, nil
}

func (d *Disk) open() (err error) {
	if err := vfs.MkdirAll(d.disk, d.dir); err != nil {
		return err
	}
	if d.lock, err = d.disk.Lock(d.dir); err != nil {
		return err
	}
	if d.limit == 0 {
		free, err := d.disk.Free(d.dir)
		if err != nil {
			return err
		}
		d.limit = free / 2
	}
	if d.unclaimed, err = vfs.Exists(d.disk, d.path(manifestName)); err != nil || d.unclaimed {
		return err
	}
	return d.clean()
}

func (d *Disk) path(name string) string { return filepath.Join(d.dir, name) }

// isCommitted says whether the committed state has an allocation of this number, or may.
func (d *Disk) isCommitted(number int) bool {
	return d.inDoubt != nil || d.committed.memory(number) != nil
}

// clean removes the disk's files that belong to no live memory and no committed one.
func (d *Disk) clean() error {
	names, err := d.disk.List(d.dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		if n, ours := pageFileNumber(name); ours && d.live[n] == nil && !d.isCommitted(n) || vfs.IsPartial(name) {
			errs = append(errs, d.remove(name))
		}
	}
	return errors.Join(errs...)
}

// remove deletes a file of the disk; a missing one is fine.
func (d *Disk) remove(name string) error {
	err := d.disk.Remove(d.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Info describes the disk. Copies at any offset work; where disk and host memory are
// both aligned they need no second copy.
func (d *Disk) Info() device.Info {
	return device.Info{Name: deviceName, Limit: d.limit, Alignment: vfs.Block}
}

// HostBytes is the host memory the disk takes now, without what HostAlloc gave.
func (d *Disk) HostBytes() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	bytes := int64(len(d.queues)) * poolBytes
	for _, m := range d.live {
		bytes += 5 * int64(len(m.pages.now.where)+len(m.pages.committed.where)) // of both tables
	}
	return bytes
}

// Kernel refuses: a disk does not compute.
func (d *Disk) Kernel(call op.Call) (device.Kernel, error) {
	return nil, &device.NoKernelError{Device: deviceName, Call: call, Reason: "a disk does not compute"}
}

// Event makes an event, not yet recorded. Queues of the CPU wait for it too.
func (d *Disk) Event() (device.Event, error) { return hostqueue.NewEvent(), nil }

// Close ends queues and closes files. A committed state stays in the folder, nothing
// else does. The error names memory that was not freed.
func (d *Disk) Close() error {
	d.mu.Lock()
	queues := d.queues
	d.queues = nil
	d.mu.Unlock()
	var errs []error
	for q := range queues {
		errs = append(errs, q.end())
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, m := range d.live {
		errs = append(errs, fmt.Errorf("disk: %d bytes at %s: %w", m.size, d.dir, device.ErrLeak), d.release(m))
	}
	for m := range d.host {
		errs = append(errs, fmt.Errorf("disk: %d bytes of host memory: %w", m.size, device.ErrLeak), m.region.Free())
	}
	d.live, d.host = nil, nil
	if d.lock != nil {
		errs = append(errs, d.lock.Close())
		d.lock = nil
	}
	return errors.Join(errs...)
}

// hostMemory is host memory a disk was asked for.
type hostMemory struct {
	disk   *Disk
	region *offheap.Region
	size   int64
}

// HostAlloc reserves host memory, aligned so that copies go straight to it.
func (d *Disk) HostAlloc(bytes int64) (device.Memory, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.host == nil {
		return nil, fmt.Errorf("disk: %d bytes asked of a closed device", bytes)
	}
	region, err := offheap.Alloc(bytes, true)
	if err != nil {
		return nil, fmt.Errorf("disk: %w", err)
	}
	m := &hostMemory{d, region, bytes}
	d.host[m] = true
	return m, nil
}

// Size is what was asked for.
func (m *hostMemory) Size() int64 { return m.size }

// Host is the memory itself.
func (m *hostMemory) Host() []byte { return m.region.Bytes() }

// Free gives the memory back. Nothing queued may still use it.
func (m *hostMemory) Free() error {
	if err := m.region.Free(); err != nil {
		return fmt.Errorf("disk: %w", err)
	}
	m.disk.mu.Lock()
	defer m.disk.mu.Unlock()
	delete(m.disk.host, m)
	return nil
}
