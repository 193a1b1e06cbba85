package vfs

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"sync"

	"spillway/internal/offheap"
)

// Ahead is a disk with read-ahead: large files are read past the page cache, in pieces, some
// of them before they are asked for. It is for reading a file once from front to back, from
// one goroutine or several. Other orders give the same bytes, slower.
func Ahead(disk FS) FS { return aheadFS{disk} }

type aheadFS struct{ FS }

// Pieces are large enough for a disk to be fast, and there are enough of them to keep it
// busy. Smaller files are read through the page cache.
const (
	aheadPiece = 1 << 20
	aheadSlots = 8
)

// Open implements FS.
func (d aheadFS) Open(name string) (File, error) {
	f, err := d.FS.Open(name)
	if err != nil {
		return nil, err
	}
	size, err := f.Size()
	if err != nil || size < aheadSlots*aheadPiece {
		return f, err
	}
	direct, err := d.FS.OpenInPlace(name, false)
	if err != nil {
		return f, nil // it can be read through the page cache
	}
	memory, err := offheap.Alloc(aheadSlots*aheadPiece, false)
	if err != nil {
		return nil, errors.Join(err, f.Close(), direct.Close())
	}
	a := &aheadFile{File: f, direct: direct, memory: memory, pieces: (size + aheadPiece - 1) / aheadPiece}
	a.changed.L = &a.mu
	for i := range a.slots {
		a.slots[i] = slot{piece: -1, bytes: memory.Bytes()[i*aheadPiece:][:aheadPiece]}
	}
	return a, nil
}

// aheadFile is a file with some of its pieces in memory.
type aheadFile struct {
	File   // for everything but reading
	direct InPlace
	memory *offheap.Region
	pieces int64

	mu      sync.Mutex
	changed sync.Cond // a slot is loaded or no longer used
	slots   [aheadSlots]slot
	last    int64 // the piece asked for last
	closed  bool
}

// slot holds a piece of the file.
type slot struct {
	piece   int64 // -1 is none
	bytes   []byte
	n       int // bytes of the file among them
	err     error
	loading bool
	users   int
}

// ReadAt implements File.
func (f *aheadFile) ReadAt(p []byte, off int64) (done int, err error) {
	if off < 0 {
		return 0, &fs.PathError{Op: "read", Path: "ahead", Err: fs.ErrInvalid}
	}
	for done < len(p) {
		piece, skip := (off+int64(done))/aheadPiece, int((off+int64(done))%aheadPiece)
		s, err := f.take(piece)
		if err != nil {
			return done, err
		}
		n := 0
		if skip < s.n {
			n = copy(p[done:], s.bytes[skip:s.n])
		}
		err = s.err
		f.release(s)
		if done += n; n == 0 {
			return done, cmp.Or(err, io.EOF)
		}
	}
	return done, nil
}

// take waits until a piece is loaded and holds its slot until release. Where the reader moves
// forward and slots are free, the pieces after it are loaded too.
func (f *aheadFile) take(piece int64) (*slot, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	forward := piece >= f.last
	f.last = piece
	for {
		if f.closed {
			return nil, fs.ErrClosed
		}
		s := f.find(piece)
		if s == nil {
			if s = f.spare(piece); s != nil {
				f.load(s, piece)
			}
		}
		if s != nil {
			s.users++
			if forward {
				f.loadAfter(piece)
			}
			for s.loading {
				f.changed.Wait()
			}
			return s, nil
		}
		f.changed.Wait()
	}
}

func (f *aheadFile) release(s *slot) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s.users--
	f.changed.Broadcast()
}

func (f *aheadFile) find(piece int64) *slot {
	for i := range f.slots {
		if f.slots[i].piece == piece {
			return &f.slots[i]
		}
	}
	return nil
}

// spare finds the slot whose piece is least likely to be asked for next: the farthest before
// the given piece, else the farthest after it. Nil where all are in use.
func (f *aheadFile) spare(piece int64) *slot {
	var best *slot
	worth := func(s *slot) int64 {
		if s.piece < piece {
			return s.piece - f.pieces
		}
		return f.pieces - s.piece
	}
	for i := range f.slots {
		s := &f.slots[i]
		if s.users == 0 && !s.loading && (best == nil || worth(s) < worth(best)) {
			best = s
		}
	}
	return best
}

// loadAfter starts to read the pieces after one, into half of the slots at most: readers on
// several goroutines are not all at the same piece.
func (f *aheadFile) loadAfter(piece int64) {
	for next := piece + 1; next < min(f.pieces, piece+1+aheadSlots/2); next++ {
		if f.find(next) != nil {
			continue
		}
		s := f.spare(piece)
		if s == nil || s.piece >= piece {
			return
		}
		f.load(s, next)
	}
}

// load starts to read a piece into a slot.
func (f *aheadFile) load(s *slot, piece int64) {
	s.piece, s.loading, s.n, s.err = piece, true, 0, nil
	go func() {
		n, err := f.direct.ReadAt(s.bytes, piece*aheadPiece)
		f.mu.Lock()
		defer f.mu.Unlock()
		s.n, s.err, s.loading = n, err, false
		if err != nil && err != io.EOF {
			s.piece = -1 // the next reader tries again
		}
		f.changed.Broadcast()
	}()
}

// Close implements File. It waits for reads that are under way.
func (f *aheadFile) Close() error {
	f.mu.Lock()
	again := f.closed
	f.closed = true
	f.changed.Broadcast()
	for i := range f.slots {
		for f.slots[i].loading || f.slots[i].users > 0 {
			f.changed.Wait()
		}
	}
	f.mu.Unlock()
	if again {
		return fs.ErrClosed
	}
	return errors.Join(f.File.Close(), f.direct.Close(), f.memory.Free())
}
