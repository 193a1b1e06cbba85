package vfs

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A file that has to stay as it is gives its bytes as long as it does, also when another takes its place, and an error for
// every read after somebody wrote to it.
func TestSteadyFiles(t *testing.T) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	name, fresh := filepath.Join(dir, "weights"), filepath.Join(dir, "fresh")
	old := bytes.Repeat([]byte{1}, 10_000)
	must(os.WriteFile(name, old, 0o600))
	must(os.Chtimes(name, time.Time{}, time.Now().Add(-time.Hour))) // clocks of files are coarse
	f, err := OpenSteady(OS, name)
	must(err)
	defer f.Close()
	read := func() ([]byte, error) {
		p := make([]byte, len(old))
		n, err := f.ReadAt(p, 0)
		return p[:n], err
	}
	must(os.Rename(name, name+".old"))
	must(os.WriteFile(fresh, bytes.Repeat([]byte{2}, 10_000), 0o600))
	must(os.Rename(fresh, name))
	if got, err := read(); err != nil || !bytes.Equal(got, old) {
		t.Errorf("a file that was replaced: %v", err)
	}
	w, err := os.OpenFile(name+".old", os.O_WRONLY, 0)
	must(err)
	_, err = w.WriteAt([]byte{3}, 9_000)
	must(err)
	must(w.Close())
	for range 2 {
		if got, err := read(); err == nil || len(got) > 0 || !strings.Contains(err.Error(), name+" changed while it was read") {
			t.Errorf("a file that was written to gives %d bytes, %v", len(got), err)
		}
	}
	if _, err := OpenSteady(OS, filepath.Join(dir, "none")); !os.IsNotExist(err) {
		t.Errorf("a file that is not there: %v", err)
	}
}
