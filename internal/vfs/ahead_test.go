package vfs

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"

	"spillway/internal/offheap"
)

// aheadBytes is a file of some pieces and a bit.
func aheadBytes() []byte {
	b := make([]byte, 13*aheadPiece+777)
	r := rand.New(rand.NewPCG(3, 4))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func writeAll(t *testing.T, d FS, name string, b []byte) {
	t.Helper()
	err := WriteFile(d, name, func(w io.Writer) error { _, err := w.Write(b); return err })
	if err != nil {
		t.Fatal(err)
	}
}

// Reads of all sizes, forward on several goroutines and anywhere, give the file's bytes;
// the end is where it is.
func TestAheadGivesTheFile(t *testing.T) {
	want := aheadBytes()
	for name, d := range map[string]FS{"memory": NewMemory(1 << 30), "os": OS} {
		path := filepath.Join(t.TempDir(), "file")
		if name == "memory" {
			path = "file"
		}
		writeAll(t, d, path, want)
		before := offheap.Mapped()
		f, err := Ahead(d).Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if offheap.Mapped() == before {
			t.Fatalf("%s: the file is read in the usual way", name)
		}
		var wait sync.WaitGroup
		for worker := range 3 {
			wait.Go(func() { readSome(t, f, want, uint64(worker)) })
		}
		wait.Wait()
		if n, err := f.ReadAt(make([]byte, 10), int64(len(want))-3); n != 3 || err != io.EOF {
			t.Errorf("%s: at the end %d bytes, %v", name, n, err)
		}
		if n, err := f.ReadAt(make([]byte, 10), int64(len(want))+aheadPiece); n != 0 || err != io.EOF {
			t.Errorf("%s: behind the end %d bytes, %v", name, n, err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		if _, err := f.ReadAt(make([]byte, 10), 0); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("%s: after closing %v", name, err)
		}
		if got := offheap.Mapped(); got != before {
			t.Errorf("%s: %d bytes are left", name, got-before)
		}
	}
}

// readSome goes through a file in steps of random sizes, then jumps about.
func readSome(t *testing.T, f File, want []byte, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 9))
	buf := make([]byte, 3*aheadPiece)
	check := func(off, n int) {
		if got, err := f.ReadAt(buf[:n], int64(off)); err != nil || !bytes.Equal(buf[:got], want[off:off+n]) {
			t.Errorf("%d bytes at %d: %d read, %v, or they differ", n, off, got, err)
		}
	}
	for off := 0; off < len(want); {
		n := min(1+r.IntN(2*aheadPiece), len(want)-off)
		check(off, n)
		off += n
	}
	for range 20 {
		off := r.IntN(len(want) - len(buf))
		check(off, r.IntN(len(buf)))
	}
}

// An error of the disk reaches the reader, and closing still frees everything.
func TestAheadErrors(t *testing.T) {
	d := NewMemory(1 << 30)
	writeAll(t, d, "file", aheadBytes())
	calls := &Faults{Disk: d}
	if f, err := Ahead(calls).Open("file"); err != nil || f.Close() != nil {
		t.Fatal(err)
	}
	before := offheap.Mapped()
	f, err := Ahead(&Faults{Disk: d, CrashAt: calls.Calls() + 4}).Open("file")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.ReadAt(make([]byte, 13*aheadPiece), 0); !errors.Is(err, ErrCrashed) {
		t.Errorf("reading gave %v", err)
	}
	if err := f.Close(); err != nil || offheap.Mapped() != before {
		t.Errorf("closing gave %v, %d bytes are left", err, offheap.Mapped()-before)
	}
}
