package store

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"spillway/internal/vfs"
)

// A file that is read in place must stay as it was: who writes to it ends the copies that read it,
// while a file that is moved away, or replaced by another, is read as before.
func TestFileChangesWhileItIsRead(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "weights")
	old, fresh := bytes.Repeat([]byte{1}, 3<<20), bytes.Repeat([]byte{2}, 3<<20)
	must(t, os.WriteFile(file, old, 0o600))
	must(t, os.Chtimes(file, time.Time{}, time.Now().Add(-time.Hour))) // clocks of files are coarse
	d := open(t, Options{Regions: []Region{{Kind: InPlace, Bytes: 2 << 20, File: file, At: 77}}})
	arena, host, q := alloc(t, d, 2<<20), hostAlloc(t, d, 2<<20), newQueue(t, d, "in")
	read := func() error {
		clear(host.Host())
		must(t, q.Copy(part(host, 0, 2<<20), part(arena, 0, 2<<20)))
		return q.Sync()
	}
	isOld := func() {
		t.Helper()
		if must(t, read()); !bytes.Equal(host.Host(), old[:2<<20]) {
			t.Error("other bytes than those of the file that was opened")
		}
	}
	isOld()
	if n := allocations(isOld); n >= 1 {
		t.Errorf("%v allocations for a copy", n)
	}
	// Replaced, as programs do that write files whole.
	other := filepath.Join(dir, "fresh")
	must(t, os.WriteFile(other, fresh, 0o600))
	must(t, os.Rename(file, filepath.Join(dir, "away")))
	must(t, os.Rename(other, file))
	isOld()
	// Written to.
	f, err := os.OpenFile(filepath.Join(dir, "away"), os.O_WRONLY, 0)
	must(t, err)
	_, err = f.WriteAt(fresh[:1], 1<<20)
	must(t, err, f.Close())
	for range 2 {
		if err := read(); err == nil || !strings.Contains(err.Error(), "changed while it was read") || !strings.Contains(err.Error(), file) {
			t.Errorf("a file that changed gives %v", err)
		}
	}
	must(t, q.Close(), arena.Free(), host.Free(), d.Close())
}

// A disk that cannot read a part of a file any more ends the copy with an error that names the file and the place, and the next copy is
// whole again if the disk is.
func TestReadErrorOfFileInPlace(t *testing.T) {
	file := filepath.Join(t.TempDir(), "weights")
	want := bytes.Repeat([]byte{1, 2, 3}, 1<<20)
	must(t, os.WriteFile(file, want, 0o600))
	faults := &vfs.Faults{Disk: vfs.OS}
	d := open(t, Options{Disk: faults, Regions: []Region{{Kind: InPlace, Bytes: 2 << 20, File: file, At: 77}}})
	arena, host, q := alloc(t, d, 2<<20), hostAlloc(t, d, 2<<20), newQueue(t, d, "in")
	read := func() error {
		must(t, q.Copy(part(host, 0, 2<<20), part(arena, 0, 2<<20)))
		return q.Sync()
	}
	must(t, read())
	faults.FailAt, faults.Err = faults.Calls()+1, syscall.EIO
	if err := read(); !errors.Is(err, syscall.EIO) || !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), "start again") {
		t.Errorf("a file that cannot be read gives %v", err)
	}
	if must(t, read()); !bytes.Equal(host.Host(), want[77:][:2<<20]) {
		t.Error("other bytes than those of the file")
	}
	must(t, q.Close(), arena.Free(), host.Free(), d.Close())
}
