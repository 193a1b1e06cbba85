package store

import (
	"errors"
	"path/filepath"
	"testing"
)

// What a folder holds counts as its capacity, and is seen without opening it.
func TestLastCommitAndCapacity(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "yet")
	before, err := Capacity(dir)
	must(t, err)
	if _, err := LastCommit(dir); !errors.Is(err, ErrNoCommit) {
		t.Errorf("a folder that is not there holds %v", err)
	}
	const bytes = 64 << 20
	d := open(t, Options{Dir: dir, Limit: bytes})
	must(t, d.Begin(0))
	m, err := d.Alloc(bytes)
	must(t, err)
	must(t, d.Commit(3), m.Free(), d.Close())
	if i, err := LastCommit(dir); i != 3 || err != nil {
		t.Errorf("it holds iteration %d: %v", i, err)
	}
	after, err := Capacity(dir)
	must(t, err)
	// Others use the disk too; the file is 128 MiB.
	if before-after > bytes {
		t.Errorf("a capacity of %d bytes before, %d with 2 x %d of them in use", before, after, bytes)
	}
}
