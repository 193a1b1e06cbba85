package vfs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// Whichever call fails, and even if the power goes then, the file is the old one or the new
// one, whole; and the old one where the error does not say otherwise.
func TestReplaceIsAllOrNothing(t *testing.T) {
	old, replaced := []byte("old"), bytes.Repeat([]byte("new"), 1000)
	for failing := 1; ; failing++ {
		m := NewMemory(1 << 20)
		if err := errors.Join(MkdirAll(m, "dir"), ReplaceBytes(m, "dir/file", old)); err != nil {
			t.Fatal(err)
		}
		faults := &Faults{Disk: m, FailAt: failing, Err: errors.New("made up")}
		err := ReplaceBytes(faults, "dir/file", replaced)
		after := m.AfterPowerLoss(rand.New(rand.NewPCG(1, uint64(failing))))
		got, readErr := ReadFile(after, "dir/file", 1<<20)
		if readErr != nil {
			t.Fatalf("call %d failed: %v", failing, readErr)
		}
		isOld, isNew := bytes.Equal(got, old), bytes.Equal(got, replaced)
		if !isOld && !isNew || err == nil && !isNew || err != nil && !errors.Is(err, ErrInDoubt) && !isOld {
			t.Errorf("call %d failed with %v: the file has %d bytes", failing, err, len(got))
		}
		if err == nil {
			return
		}
	}
}

// Many writers of one file leave one of their versions and no hidden files.
func TestReplaceAtOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	file := filepath.Join(dir, "file")
	var writers sync.WaitGroup
	for i := range 8 {
		writers.Go(func() {
			version := bytes.Repeat([]byte{byte('a' + i)}, 10_000+i)
			if err := errors.Join(MkdirAll(OS, dir), ReplaceBytes(OS, file, version)); err != nil {
				t.Error(err)
			}
		})
	}
	writers.Wait()
	got, err := os.ReadFile(file)
	if err != nil || len(got) != 10_000+int(got[0]-'a') || bytes.Count(got, got[:1]) != len(got) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if names, _ := OS.List(dir); len(names) != 1 {
		t.Errorf("%q are left", names)
	}
}

// What a killed process began is removed when the file is written next; what others are
// writing, and files that look similar, stay.
func TestDraftsOfKilledProcesses(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "plan.json")
	for _, name := range []string{".plan.json.0123456789abcdef.partial", ".plan.json.partial", ".other.json.0123456789abcdef.partial"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("half"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	other, err := Begin(OS, file)
	if err == nil {
		_, err = other.Write([]byte("slow"))
	}
	if err = errors.Join(err, ReplaceBytes(OS, file, []byte("quick"))); err != nil {
		t.Fatal(err)
	}
	if names, _ := OS.List(dir); len(names) != 4 {
		t.Errorf("%q are left", names)
	}
	if got, _ := os.ReadFile(file); string(got) != "quick" {
		t.Errorf("the file has %q", got)
	}
	if err := other.Commit(); err != nil {
		t.Error(err)
	}
	if got, _ := os.ReadFile(file); string(got) != "slow" {
		t.Errorf("the file has %q", got)
	}
}

func TestWriteOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	for i := range 2 {
		err := WriteOnce(file, fmt.Append(nil, "version ", i))
		if (i == 0) != (err == nil) || i > 0 && !errors.Is(err, fs.ErrExist) {
			t.Errorf("write %d: %v", i, err)
		}
	}
	if got, _ := os.ReadFile(file); string(got) != "version 0" {
		t.Errorf("the file has %q", got)
	}
	if names, _ := OS.List(filepath.Dir(file)); len(names) != 1 {
		t.Errorf("%q are left", names)
	}
}

func TestIsPartial(t *testing.T) {
	for name, want := range map[string]bool{".a.partial": true, filepath.Base(partialFile("dir/manifest")): true, "manifest": false, ".hidden": false, "a.partial": false} {
		if IsPartial(name) != want {
			t.Errorf("%s is partial: %v", name, !want)
		}
	}
}
