package vfs

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"path/filepath"
	"syscall"
	"testing"
	"unsafe"
)

// blocks is n blocks of memory at an aligned address.
func blocks(n int) []byte {
	p := make([]byte, (n+1)*Block)
	at := int(-uintptr(unsafe.Pointer(&p[0])) % Block)
	return p[at : at+n*Block : at+n*Block]
}

func fill(rng *rand.Rand, p []byte) {
	for i := range p {
		p[i] = byte(rng.Uint32())
	}
}

// Random reads and writes of whole blocks give what a slice gives, on every disk.
func TestInPlaceAgainstSlice(t *testing.T) {
	const size = 16
	for name, open := range disks(t) {
		t.Run(name, func(t *testing.T) {
			d, dir := open()
			f, err := d.OpenInPlace(filepath.Join(dir, "pages"), true)
			if err != nil {
				t.Fatal(err)
			}
			if err := f.Reserve(size * Block); err != nil {
				t.Fatal(err)
			}
			rng, model := rand.New(rand.NewPCG(1, 2)), make([]byte, size*Block)
			for range 200 {
				at := rng.IntN(size)
				p := blocks(1 + rng.IntN(size-at))
				if rng.IntN(2) == 0 {
					fill(rng, p)
					copy(model[at*Block:], p)
					if n, err := f.WriteAt(p, int64(at*Block)); n != len(p) || err != nil {
						t.Fatalf("wrote %d of %d bytes: %v", n, len(p), err)
					}
					continue
				}
				if n, err := f.ReadAt(p, int64(at*Block)); n != len(p) || err != nil || !bytes.Equal(p, model[at*Block:at*Block+n]) {
					t.Fatalf("read %d of %d bytes at block %d: %v, or other bytes", n, len(p), at, err)
				}
			}
			if err := errors.Join(f.Reserve(Block), f.Sync()); err != nil {
				t.Error(err)
			}
			if n, err := f.Size(); n != size*Block || err != nil {
				t.Errorf("size %d, %v", n, err)
			}
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A file of any length can be read in whole blocks; its end is io.EOF.
func TestInPlaceEnd(t *testing.T) {
	for name, open := range disks(t) {
		d, dir := open()
		text := bytes.Repeat([]byte("abc"), Block/2)
		path := filepath.Join(dir, "file")
		put(t, d, path, string(text))
		f, err := d.OpenInPlace(path, false)
		if err != nil {
			t.Fatal(err)
		}
		p := blocks(4)
		if n, err := f.ReadAt(p, 0); n != len(text) || err != io.EOF || !bytes.Equal(p[:n], text) {
			t.Errorf("%s: read %d of %d bytes, %v", name, n, len(text), err)
		}
		if n, err := f.ReadAt(p, Block); n != len(text)-Block || err != io.EOF || !bytes.Equal(p[:n], text[Block:]) {
			t.Errorf("%s: read %d bytes from the second block on, %v", name, n, err)
		}
		if n, err := f.ReadAt(p, 4*Block); n != 0 || err != io.EOF {
			t.Errorf("%s: read %d bytes behind the end, %v", name, n, err)
		}
		if _, err := f.WriteAt(p, 0); !errors.Is(err, syscall.EBADF) {
			t.Errorf("%s: writing a file opened for reading gives %v", name, err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestInPlaceRefusesWhatIsNotAligned(t *testing.T) {
	for name, open := range disks(t) {
		d, dir := open()
		f, err := d.OpenInPlace(filepath.Join(dir, "pages"), true)
		if err != nil {
			t.Fatal(err)
		}
		p := blocks(2)
		for _, c := range []struct {
			p   []byte
			off int64
		}{{p[:100], 0}, {p[:Block], 100}, {p[8 : Block+8], 0}, {p[:Block], -Block}} {
			_, read := f.ReadAt(c.p, c.off)
			_, write := f.WriteAt(c.p, c.off)
			if !errors.Is(read, syscall.EINVAL) || !errors.Is(write, syscall.EINVAL) {
				t.Errorf("%s: %d bytes at %d: %v, %v", name, len(c.p), c.off, read, write)
			}
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A folder is locked by one at a time, on every disk.
func TestLock(t *testing.T) {
	for name, open := range disks(t) {
		d, dir := open()
		first, err := d.Lock(dir)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.Lock(dir); !errors.Is(err, ErrLocked) {
			t.Errorf("%s: locked twice: %v", name, err)
		}
		if err := first.Close(); err != nil {
			t.Error(err)
		}
		again, err := d.Lock(dir)
		if err != nil {
			t.Fatalf("%s: after the lock was given back: %v", name, err)
		}
		if err := again.Close(); err != nil {
			t.Error(err)
		}
		if _, err := d.Lock(filepath.Join(dir, "missing")); err == nil {
			t.Errorf("%s: a folder that is not there was locked", name)
		}
	}
}

func TestInPlaceFaults(t *testing.T) {
	boom := errors.New("boom")
	full := &Faults{Disk: NewMemory(1 << 20), Capacity: 2 * Block}
	f, err := full.OpenInPlace("/pages", true)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Reserve(3 * Block); !NoSpace(err) {
		t.Errorf("reserving more than fits gives %v", err)
	}
	if n, err := f.WriteAt(blocks(3), 0); n != 2*Block || !NoSpace(err) {
		t.Errorf("wrote %d bytes: %v", n, err)
	}
	short := &Faults{Disk: NewMemory(1 << 20), ShortAt: 2}
	if f, err = short.OpenInPlace("/pages", true); err != nil {
		t.Fatal(err)
	}
	if n, err := f.WriteAt(blocks(3), 0); n != Block || err != nil {
		t.Errorf("a short write wrote %d bytes: %v", n, err)
	}
	for call := range 4 {
		fails := &Faults{Disk: NewMemory(1 << 20), FailAt: 2, Err: boom}
		f, err := fails.OpenInPlace("/pages", true)
		if err != nil {
			t.Fatal(err)
		}
		var got error
		switch call {
		case 0:
			_, got = f.ReadAt(blocks(1), 0)
		case 1:
			_, got = f.WriteAt(blocks(1), 0)
		case 2:
			got = f.Sync()
		case 3:
			got = f.Reserve(Block)
		}
		if got != boom {
			t.Errorf("call %d gives %v", call, got)
		}
	}
}
