package vfs

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
)

// disks are the implementations that must agree, each with an empty folder.
func disks(t *testing.T) map[string]func() (FS, string) {
	return map[string]func() (FS, string){
		"os":     func() (FS, string) { return OS, t.TempDir() },
		"memory": func() (FS, string) { return NewMemory(1 << 20), "/" },
		"faults": func() (FS, string) { return &Faults{Disk: NewMemory(1 << 20)}, "/" },
	}
}

func put(t *testing.T, d FS, name, text string) {
	t.Helper()
	err := WriteFile(d, name, func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, d FS, name string) string {
	t.Helper()
	p, err := ReadFile(d, name, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	return string(p)
}

func names(t *testing.T, d FS, dir string) []string {
	t.Helper()
	n, err := d.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestDisksAgree(t *testing.T) {
	for name, open := range disks(t) {
		t.Run(name, func(t *testing.T) {
			d, dir := open()
			at := func(parts ...string) string { return filepath.Join(append([]string{dir}, parts...)...) }
			if err := MkdirAll(d, at("a", "b")); err != nil {
				t.Fatal(err)
			}
			put(t, d, at("a", "x"), "first")
			put(t, d, at("a", "x"), "second")
			put(t, d, at("a", "empty"), "")
			if got := get(t, d, at("a", "x")) + get(t, d, at("a", "empty")); got != "second" {
				t.Errorf("read %q", got)
			}
			if _, err := ReadFile(d, at("a", "x"), 5); err == nil {
				t.Error("a file above the limit was read")
			}
			if err := d.Rename(at("a", "x"), at("a", "y")); err != nil {
				t.Error(err)
			}
			if got := names(t, d, at("a")); !slices.Equal(got, []string{"b", "empty", "y"}) {
				t.Errorf("listed %v", got)
			}
			if i, err := d.Stat(at("a", "y")); err != nil || i != (Info{Size: 6}) {
				t.Errorf("stat: %+v, %v", i, err)
			}
			if i, err := d.Stat(at("a", "b")); err != nil || i != (Info{Dir: true}) {
				t.Errorf("stat of a folder: %+v, %v", i, err)
			}
			if free, err := d.Free(dir); err != nil || free <= 0 {
				t.Errorf("free: %d, %v", free, err)
			}
			checkRefusals(t, d, at)
			if err := RemoveAll(d, at("a")); err != nil {
				t.Error(err)
			}
			if ok, err := Exists(d, at("a")); ok || err != nil {
				t.Errorf("after RemoveAll: %v, %v", ok, err)
			}
			if err := RemoveAll(d, at("a")); err != nil {
				t.Errorf("removing what is not there: %v", err)
			}
		})
	}
}

func checkRefusals(t *testing.T, d FS, at func(...string) string) {
	if _, err := d.Open(at("none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("opening a missing file: %v", err)
	}
	if _, err := d.Create(at("none", "x")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("creating in a missing folder: %v", err)
	}
	if err := d.Mkdir(at("a", "b")); !errors.Is(err, fs.ErrExist) {
		t.Errorf("making a folder twice: %v", err)
	}
	if err := d.Remove(at("a")); err == nil {
		t.Error("a full folder was removed")
	}
	if err := d.Rename(at("a", "b"), at("a", "c")); err != nil {
		t.Error(err)
	}
	put(t, d, at("a", "c", "z"), "z")
	if err := MkdirAll(d, at("a", "e")); err != nil {
		t.Error(err)
	}
	if err := d.Rename(at("a", "c"), at("a", "e")); !errors.Is(err, fs.ErrExist) {
		t.Errorf("replacing a folder: %v", err)
	}
	if err := MkdirAll(d, at("a", "y")); err == nil {
		t.Error("a folder was made where a file is")
	}
}

func TestRemoveAllLeavesWhatLinksLeadTo(t *testing.T) {
	dir := t.TempDir()
	kept, doomed := filepath.Join(dir, "kept"), filepath.Join(dir, "doomed")
	for _, d := range []string{kept, doomed} {
		if err := OS.Mkdir(d); err != nil {
			t.Fatal(err)
		}
	}
	put(t, OS, filepath.Join(kept, "x"), "x")
	for link, target := range map[string]string{"folder": kept, "dangling": filepath.Join(dir, "none")} {
		if err := os.Symlink(target, filepath.Join(doomed, link)); err != nil {
			t.Fatal(err)
		}
	}
	if i, err := OS.Stat(filepath.Join(doomed, "folder")); err != nil || i != (Info{Dir: true, Link: true}) {
		t.Errorf("a link to a folder: %+v, %v", i, err)
	}
	if err := RemoveAll(OS, doomed); err != nil {
		t.Error(err)
	}
	if got := get(t, OS, filepath.Join(kept, "x")); got != "x" {
		t.Errorf("the target of the link now holds %q", got)
	}
}

// Whatever is synced survives, and nothing appears that was never written.
func TestPowerLoss(t *testing.T) {
	m := NewMemory(1 << 20)
	put(t, m, "/synced", "old")
	if err := m.SyncDir("/"); err != nil {
		t.Fatal(err)
	}
	put(t, m, "/nameless", "bytes synced, name not")
	f, err := m.Create("/torn")
	if err != nil {
		t.Fatal(err)
	}
	written := bytes.Repeat([]byte{7}, 2000)
	if _, err := f.Write(written); err != nil {
		t.Fatal(err)
	}
	seen := map[int]int{} // how often so many files survived
	whole := 0
	for seed := range uint64(200) {
		after := m.AfterPowerLoss(rand.New(rand.NewPCG(seed, 0)))
		left := names(t, after, "/")
		seen[len(left)]++
		if got := get(t, after, "/synced"); got != "old" {
			t.Fatalf("lost what was synced: %q", got)
		}
		if slices.Contains(left, "nameless") && get(t, after, "/nameless") != "bytes synced, name not" {
			t.Fatal("lost the synced bytes of a file")
		}
		if slices.Contains(left, "torn") && get(t, after, "/torn") == string(written) {
			whole++
		}
	}
	if seen[1] == 0 || seen[2] == 0 || seen[3] == 0 || whole >= seen[3]/2 {
		t.Errorf("200 losses left 1, 2, 3 files %v times, %d unsynced files whole", seen, whole)
	}
}

// Stopped at any call, by a death or by a loss of power, Publish leaves nothing or
// everything under the name, and the next Publish repairs the rest.
func TestPublishIsAllOrNothing(t *testing.T) {
	publish := func(d FS) error {
		return Publish(d, "/out", func(partial string) error {
			for _, n := range []string{"a", "b"} {
				err := WriteFile(d, filepath.Join(partial, n), func(w io.Writer) error {
					_, err := w.Write(bytes.Repeat([]byte(n), 3000))
					return err
				})
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	count := &Faults{Disk: NewMemory(1 << 20)}
	if err := publish(count); err != nil {
		t.Fatal(err)
	}
	for at := 1; at <= count.Calls(); at++ {
		m := NewMemory(1 << 20)
		if err := publish(&Faults{Disk: m, CrashAt: at}); !errors.Is(err, ErrCrashed) {
			t.Fatalf("crash at call %d of %d: %v", at, count.Calls(), err)
		}
		disks := []*Memory{m}
		for seed := range uint64(20) {
			disks = append(disks, m.AfterPowerLoss(rand.New(rand.NewPCG(seed, uint64(at)))))
		}
		for _, after := range disks {
			if ok, _ := Exists(after, "/out"); ok {
				checkPublished(t, after)
				continue
			}
			if err := publish(after); err != nil {
				t.Fatalf("publishing again after a crash at call %d: %v", at, err)
			}
			checkPublished(t, after)
			if got := names(t, after, "/"); !slices.Equal(got, []string{"out"}) {
				t.Fatalf("left behind: %v", got)
			}
		}
	}
}

func checkPublished(t *testing.T, d FS) {
	t.Helper()
	for _, n := range []string{"a", "b"} {
		if get(t, d, "/out/"+n) != string(bytes.Repeat([]byte(n), 3000)) {
			t.Fatalf("file %s is not whole", n)
		}
	}
}

func TestFaults(t *testing.T) {
	boom := errors.New("boom")
	write := func(f *Faults) (int, error) {
		file, err := f.Create("/x") // call 1
		if err != nil {
			return 0, err
		}
		return file.Write([]byte("12345678")) // call 2
	}
	for _, c := range []struct {
		name   string
		faults *Faults
		n      int
		err    error
	}{
		{"none", &Faults{}, 8, nil},
		{"open fails", &Faults{FailAt: 1, Err: boom}, 0, boom},
		{"write fails", &Faults{FailAt: 2, Err: boom}, 0, boom},
		{"short", &Faults{ShortAt: 2}, 4, nil},
		{"full", &Faults{Capacity: 5}, 5, syscall.ENOSPC},
		{"crash", &Faults{CrashAt: 2}, 4, ErrCrashed},
	} {
		c.faults.Disk = NewMemory(100)
		n, err := write(c.faults)
		if n != c.n || !errors.Is(err, c.err) {
			t.Errorf("%s: %d, %v; want %d, %v", c.name, n, err, c.n, c.err)
		}
	}
	m := NewMemory(100)
	put(t, m, "/x", "abc")
	flip := &Faults{Disk: m, Corrupt: func(name string, off int64, p []byte) { p[1] ^= 1 }}
	if got := get(t, flip, "/x"); got != "acc" {
		t.Errorf("read %q through a flipped bit", got)
	}
	if _, err := write(&Faults{Disk: NewMemory(7)}); !NoSpace(err) {
		t.Errorf("8 bytes on a disk of 7: %v", err)
	}
}
