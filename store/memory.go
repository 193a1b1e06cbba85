package store

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"spillway/device"
	"spillway/internal/vfs"
)

// memory is one allocation: regions of files.
type memory struct {
	disk   *Disk
	number int // of its file
	size   int64
	layout *layout
	pages  *pages
	files  map[string]*inPlace // by the name in the regions
}

// inPlace is a file that is read where it is.
type inPlace struct {
	vfs.InPlace
	size     int64
	modified int64 // when it was opened
}

// pageFile is the name of the file of an allocation.
func pageFile(number int) string { return fmt.Sprintf("arena-%d.pages", number) }

// pageFileNumber reads what pageFile wrote.
func pageFileNumber(name string) (int, bool) {
	digits, a := strings.CutPrefix(name, "arena-")
	digits, b := strings.CutSuffix(digits, ".pages")
	n, err := strconv.Atoi(digits)
	return n, a && b && err == nil
}

// Alloc reserves memory on the disk, all of its space at once. After Recover, the
// allocations of the run that was committed come back with their content; everything
// else is zeros. The error is a vfs.SpaceError where the disk has not enough space.
func (d *Disk) Alloc(bytes int64) (device.Memory, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.live == nil:
		return nil, fmt.Errorf("disk: %d bytes asked of a closed device", bytes)
	case bytes < 0:
		return nil, fmt.Errorf("disk: %d bytes asked", bytes)
	case d.unclaimed:
		return nil, fmt.Errorf("disk: %s holds the state of an earlier run: Recover goes on from it, Discard forgets it", d.dir)
	}
	m, err := d.newMemory(bytes)
	if err != nil {
		return nil, fmt.Errorf("disk: %d bytes at %s: %w", bytes, d.dir, err)
	}
	d.live[m.number] = m
	d.allocated += m.layout.ownBytes()
	return m, nil
}

func (d *Disk) newMemory(bytes int64) (m *memory, err error) {
	m = &memory{disk: d, size: bytes, files: map[string]*inPlace{}}
	for d.live[m.number] != nil {
		m.number++
	}
	regions := []Region{{Kind: Journaled, Bytes: bytes}}
	if m.number == 0 && len(d.regions) > 0 {
		regions = d.regions
	}
	if m.layout, err = newLayout(bytes, regions); err != nil {
		return nil, err
	}
	if own := m.layout.ownBytes(); own > d.limit-d.allocated {
		return nil, &device.OutOfMemoryError{Device: deviceName, Asked: own, Allocated: d.allocated, Limit: d.limit}
	}
	m.pages = newPages(m.layout, d.path(pageFile(m.number)))
	if err := errors.Join(m.openInPlace(), m.openPages()); err != nil {
		return nil, errors.Join(err, d.release(m))
	}
	return m, nil
}

// openInPlace opens the files of regions in place.
func (m *memory) openInPlace() error {
	for _, r := range m.layout.regions {
		if r.Kind != InPlace {
			continue
		}
		f := m.files[r.File]
		if f == nil {
			file, err := m.disk.disk.OpenInPlace(r.File, false)
			if err != nil {
				return err
			}
			f = &inPlace{InPlace: file}
			m.files[r.File] = f
			if f.size, err = file.Size(); err != nil {
				return err
			}
			if f.modified, err = file.Modified(); err != nil {
				return err
			}
		}
		if r.At+r.Bytes > f.size {
			return fmt.Errorf("a region is bytes %d to %d of %s, which has %d", r.At, r.At+r.Bytes, r.File, f.size)
		}
	}
	return nil
}

// openPages opens the committed file, or makes a new one.
func (m *memory) openPages() error {
	if was := m.disk.committed.memory(m.number); was != nil {
		return m.adopt(was)
	}
	needed := m.layout.fileBytes()
	if needed == 0 {
		return nil
	}
	d := m.disk
	return vfs.WithSpace(d.disk, d.dir, needed, func() (err error) {
		if err := d.remove(pageFile(m.number)); err != nil {
			return err
		}
		if m.pages.file, err = d.disk.OpenInPlace(m.pages.name, true); err != nil {
			return err
		}
		if err := m.pages.file.Reserve(needed); err != nil {
			return err
		}
		return d.disk.SyncDir(d.dir)
	})
}

// adopt goes on from a committed state.
func (m *memory) adopt(was *committedMemory) (err error) {
	if err := was.sameAs(m); err != nil {
		return fmt.Errorf("%s was committed by another run: %w; Discard forgets it", m.pages.name, err)
	}
	if m.pages.file, err = m.disk.disk.OpenInPlace(m.pages.name, true); err != nil {
		return err
	}
	size, err := m.pages.file.Size()
	if err != nil {
		return err
	}
	if want := m.layout.fileBytes(); size != want {
		return fmt.Errorf("%s has %d bytes, %d were committed", m.pages.name, size, want)
	}
	m.pages.committed.copyFrom(was.versions)
	m.pages.now.copyFrom(was.versions)
	return nil
}

// Size is what was asked for.
func (m *memory) Size() int64 { return m.size }

// Host is nil: the CPU does not reach a disk.
func (m *memory) Host() []byte { return nil }

// Free closes the files. What was committed stays in the folder.
func (m *memory) Free() error {
	m.disk.mu.Lock()
	defer m.disk.mu.Unlock()
	if m.disk.live[m.number] != m {
		return fmt.Errorf("disk: freeing memory that was freed before")
	}
	delete(m.disk.live, m.number)
	m.disk.allocated -= m.layout.ownBytes()
	return m.disk.release(m)
}

// release closes the files of a memory and removes its own unless it is committed.
func (d *Disk) release(m *memory) error {
	var errs []error
	for _, f := range m.files {
		errs = append(errs, f.Close())
	}
	if m.pages.file != nil {
		errs = append(errs, m.pages.file.Close())
		if !d.isCommitted(m.number) {
			errs = append(errs, d.remove(pageFile(m.number)))
		}
	}
	return errors.Join(errs...)
}

// read fills host from an offset on; host is within one chunk of the layout.
func (m *memory) read(r *placedRegion, offset int64, host []byte, w *worker) error {
	switch {
	case r == nil:
		clear(host)
		return nil
	case r.Kind == InPlace:
		return m.files[r.File].read(r.File, r.At+offset-r.Offset, host, w)
	}
	return m.pages.read(r, offset, host, w)
}

// write stores host at an offset; host is within one chunk of the layout.
func (m *memory) write(r *placedRegion, offset int64, host []byte, w *worker) error {
	switch {
	case r == nil:
		return fmt.Errorf("disk: writing %d bytes at %d: no region is there", len(host), offset)
	case r.Kind == InPlace:
		return fmt.Errorf("disk: writing %d bytes at %d: they are bytes of %s, which is only read; give what changes a journaled or scratch region", len(host), offset, r.File)
	}
	return m.pages.write(r, offset, host, w)
}

// read fills host with the bytes at any offset of the file, through whole blocks.
func (f *inPlace) read(name string, at int64, host []byte, w *worker) error {
	skip := at % vfs.Block
	blocks := (skip + int64(len(host)) + vfs.Block - 1) / vfs.Block
	buf := w.bounce[:blocks*vfs.Block]
	n, err := f.ReadAt(buf, at-skip)
	if n < int(skip)+len(host) {
		if err == nil || err == io.EOF {
			err = fmt.Errorf("the file had %d bytes when it was opened: %w", f.size, io.ErrUnexpectedEOF)
		}
		return fmt.Errorf("disk: reading %d bytes at %d of %s: %w; nothing is computed with what was read. See whether the file is whole, and start again from a whole copy", len(host), at, name, err)
	}
	copy(host, buf[skip:])
	return f.unchanged(name)
}

// unchanged says that nobody wrote to the file since it was opened. A file that another one took the
// place of stays as it was for those who have it open.
func (f *inPlace) unchanged(name string) error {
	modified, err := f.Modified()
	if err != nil {
		return err
	}
	if err := vfs.Unchanged(name, f.modified, modified); err != nil {
		return fmt.Errorf("disk: %w", err)
	}
	return nil
}
