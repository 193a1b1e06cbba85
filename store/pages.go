package store

import (
	"cmp"
	"fmt"
	"hash/crc32"
	"io"
	"sync/atomic"
	"unsafe"

	"spillway/internal/vfs"
)

// generation of a page: which of its two places holds it.
type generation uint8

// The generations. A page never written is unwritten, and reads as zeros.
const (
	unwritten generation = iota
	first
	second
)

// versions of pages: where each is and what its bytes sum to.
type versions struct {
	where []generation
	sums  []uint32
}

func newVersions(pages int64) versions {
	return versions{make([]generation, pages), make([]uint32, pages)}
}

func (v versions) copyFrom(o versions) {
	copy(v.where, o.where)
	copy(v.sums, o.sums)
}

// pages are the journaled and scratch pages of an allocation in their file.
type pages struct {
	layout *layout
	name   string
	file   vfs.InPlace // nil where the layout has no pages
	locks  pageLocks   // guards the entries of now for the pages being copied

	now       versions // all pages
	committed versions // journaled pages, as the manifest on disk has them

	changed atomic.Bool // a journaled page was written since the last commit
	broken  atomic.Bool // a write failed since the last commit
	frozen  atomic.Bool // a commit may or may not have happened: no page may be written
}

func newPages(l *layout, name string) *pages {
	p := &pages{layout: l, name: name, now: newVersions(l.journaled + l.scratch), committed: newVersions(l.journaled)}
	p.locks.changed.L = &p.locks.mu
	return p
}

// target is the generation that a page's next write goes to: never the committed one.
func (p *pages) target(page int64) generation {
	if page < p.layout.journaled && p.committed.where[page] == first {
		return second
	}
	return first
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ChecksumError says that bytes on disk are not those that were written.
type ChecksumError struct {
	File      string
	Offset    int64 // of the page in the file
	Want, Got uint32
}

// Error gives both sums and the way out.
func (e *ChecksumError) Error() string {
	return fmt.Sprintf("%s: the page at %d has the checksum %08x, %08x was written: the disk lost or changed it; go on from a checkpoint on another disk",
		e.File, e.Offset, e.Got, e.Want)
}

// load reads n adjacent pages into buf and verifies them.
func (p *pages) load(page, n int64, buf []byte) error {
	g := p.now.where[page]
	if g == unwritten {
		clear(buf)
		return nil
	}
	at := p.layout.at(page, g)
	if got, err := p.file.ReadAt(buf, at); got < len(buf) {
		return fmt.Errorf("disk: read %d of %d bytes at %d of %s: %w", got, len(buf), at, p.name, cmp.Or(err, io.ErrUnexpectedEOF))
	}
	for i := range n {
		if sum := crc32.Checksum(buf[i*pageBytes:(i+1)*pageBytes], castagnoli); sum != p.now.sums[page+i] {
			return &ChecksumError{p.name, at + i*pageBytes, p.now.sums[page+i], sum}
		}
	}
	return nil
}

// save writes n pages from buf to one generation.
func (p *pages) save(page, n int64, g generation, buf []byte) error {
	if page < p.layout.journaled {
		if p.frozen.Load() {
			return fmt.Errorf("disk: writing %s after a commit that may or may not have happened: open the disk again and recover", p.name)
		}
		p.changed.Store(true)
	}
	at := p.layout.at(page, g)
	if put, err := p.file.WriteAt(buf, at); put < len(buf) || err != nil {
		p.broken.Store(true)
		return fmt.Errorf("disk: wrote %d of %d bytes at %d of %s: %w", put, len(buf), at, p.name, cmp.Or(err, io.ErrShortWrite))
	}
	for i := range n {
		p.now.where[page+i] = g
		p.now.sums[page+i] = crc32.Checksum(buf[i*pageBytes:(i+1)*pageBytes], castagnoli)
	}
	return nil
}

// isDirect says whether whole pages can be read or written where they are in memory.
func isDirect(host []byte) bool {
	return len(host) >= pageBytes && uintptr(unsafe.Pointer(unsafe.SliceData(host)))%vfs.Block == 0
}

// span is the pages that bytes of a region touch.
func (r *placedRegion) span(offset, n int64) (page, skip, count int64) {
	into := offset - r.Offset
	page, skip = r.page+into/pageBytes, into%pageBytes
	return page, skip, (skip + n + pageBytes - 1) / pageBytes
}

// together counts pages from one on that are alike, at most n.
func together(page, n int64, of func(page int64) generation) (count int64) {
	for g := of(page); count < n && of(page+count) == g; count++ {
	}
	return count
}

// read fills host with bytes of a region, at most a chunk.
func (p *pages) read(r *placedRegion, offset int64, host []byte, w *worker) error {
	page, _, count := r.span(offset, int64(len(host)))
	p.locks.lock(page, page+count, false)
	defer p.locks.unlock(page, page+count)
	for len(host) > 0 {
		page, skip, count := r.span(offset, int64(len(host)))
		n := together(page, count, func(page int64) generation { return p.now.where[page] })
		var done int
		var err error
		if skip == 0 && isDirect(host) {
			n = min(n, int64(len(host))/pageBytes)
			done = int(n * pageBytes)
			err = p.load(page, n, host[:done])
		} else {
			n = edge(host, skip, n)
			buf := w.bounce[:n*pageBytes]
			err = p.load(page, n, buf)
			done = copy(host, buf[skip:])
		}
		if err != nil {
			return err
		}
		offset, host = offset+int64(done), host[done:]
	}
	return nil
}

// edge is how many of n pages go through the bounce buffer: one, where the pages after it
// can do without.
func edge(host []byte, skip, n int64) int64 {
	if rest := pageBytes - skip; int64(len(host)) > rest && isDirect(host[rest:]) {
		return 1
	}
	return n
}

// write stores host as bytes of a region, at most a chunk.
func (p *pages) write(r *placedRegion, offset int64, host []byte, w *worker) error {
	page, _, count := r.span(offset, int64(len(host)))
	p.locks.lock(page, page+count, true)
	defer p.locks.unlock(page, page+count)
	for len(host) > 0 {
		page, skip, count := r.span(offset, int64(len(host)))
		g, n := p.target(page), together(page, count, p.target)
		var done int
		var err error
		if skip == 0 && isDirect(host) {
			n = min(n, int64(len(host))/pageBytes)
			done = int(n * pageBytes)
			err = p.save(page, n, g, host[:done])
		} else {
			n = edge(host, skip, n)
			done, err = p.merge(r, offset, n, host, w)
			if err == nil {
				err = p.save(page, n, g, w.bounce[:n*pageBytes])
			}
		}
		if err != nil {
			return err
		}
		offset, host = offset+int64(done), host[done:]
	}
	return nil
}

// merge puts bytes over n pages in the bounce buffer, and around them what the first
// and the last page hold, as far as bytes of the region are left there.
func (p *pages) merge(r *placedRegion, offset, n int64, host []byte, w *worker) (int, error) {
	page, skip, _ := r.span(offset, int64(len(host)))
	buf := w.bounce[:n*pageBytes]
	end := min(skip+int64(len(host)), n*pageBytes)
	atEnd := offset+end-skip == r.Offset+r.Bytes
	last := n - 1
	if skip > 0 || n == 1 && end < pageBytes && !atEnd {
		if err := p.load(page, 1, buf[:pageBytes]); err != nil {
			return 0, err
		}
	}
	switch {
	case atEnd:
		clear(buf[end:])
	case end < n*pageBytes && last > 0:
		if err := p.load(page+last, 1, buf[last*pageBytes:]); err != nil {
			return 0, err
		}
	}
	return copy(buf[skip:end], host), nil
}
