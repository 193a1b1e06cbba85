package vfs_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"spillway/internal/vfs"
)

// One of many claims wins, the others say who is there, and nothing is left behind.
func TestClaim(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "out")
	var holding, most, won atomic.Int64
	var all sync.WaitGroup
	for range 200 {
		all.Go(func() {
			release, err := vfs.Claim(path)
			var held *vfs.HeldError
			if errors.As(err, &held) {
				if held.Path != path || held.Holder != "another process" && !strings.Contains(held.Holder, fmt.Sprintf("process %d", os.Getpid())) {
					t.Errorf("held: %v", held)
				}
				return
			}
			if err != nil {
				t.Error(err)
				return
			}
			won.Add(1)
			if n := holding.Add(1); n > most.Load() {
				most.Store(n)
			}
			holding.Add(-1)
			if err := release(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if won.Load() == 0 || most.Load() != 1 {
		t.Errorf("%d won, %d at once", won.Load(), most.Load())
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	release, err := vfs.Claim(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := vfs.Claim(path); err == nil || !strings.Contains(err.Error(), "is being written by process") {
		t.Errorf("a second claim: %v", err)
	}
	if err := release(); err != nil {
		t.Error(err)
	}
}

// Two that publish to one folder do not touch each other's files: one is refused.
func TestPublishIsClaimed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	inside, go_on, done := make(chan bool), make(chan bool), make(chan error)
	go func() {
		done <- vfs.Publish(vfs.OS, dir, func(partial string) error {
			if err := os.WriteFile(filepath.Join(partial, "weights"), []byte("whole"), 0o644); err != nil {
				return err
			}
			inside <- true
			<-go_on
			return nil
		})
	}()
	<-inside
	var held *vfs.HeldError
	if err := vfs.Publish(vfs.OS, dir, func(string) error { return nil }); !errors.As(err, &held) {
		t.Errorf("the second: %v", err)
	}
	go_on <- true
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "weights")); err != nil || string(b) != "whole" {
		t.Errorf("published %q, %v", b, err)
	}
}

// Who was killed is not named by those who come after it, and its lock is gone with the next
// release.
func TestClaimAfterAKill(t *testing.T) {
	dir := t.TempDir()
	path, lock := filepath.Join(dir, "out"), filepath.Join(dir, ".out.lock")
	if err := os.WriteFile(lock, []byte("process 1234567 (a program with a long name), since 1999-12-31 23:59:59"), 0o644); err != nil {
		t.Fatal(err)
	}
	vfs.SetCommand("spillway try")
	release, err := vfs.Claim(path)
	if err != nil {
		t.Fatal(err)
	}
	var held *vfs.HeldError
	if _, err := vfs.Claim(path); !errors.As(err, &held) {
		t.Fatal(err)
	}
	var pid int
	var date, clock string
	if n, err := fmt.Sscanf(held.Holder, "process %d (spillway try), since %s %s", &pid, &date, &clock); n != 3 || pid != os.Getpid() || len(clock) != len("23:59:59") {
		t.Errorf("held by %q: %v", held.Holder, err)
	}
	if err := vfs.RemoveStaleLocks(dir); err != nil {
		t.Error(err)
	}
	if _, err := vfs.Claim(path); !errors.As(err, &held) {
		t.Errorf("the lock of a living process was removed: %v", err)
	}
	if err := release(); err != nil {
		t.Error(err)
	}
	for _, name := range []string{lock, filepath.Join(dir, "a.lock"), filepath.Join(dir, ".b.lock")} {
		if err := os.WriteFile(name, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := vfs.RemoveStaleLocks(dir); err != nil {
		t.Error(err)
	}
	if left, err := vfs.OS.List(dir); err != nil || len(left) != 1 || left[0] != "a.lock" {
		t.Errorf("left: %q, %v", left, err)
	}
}

// Folders of this process alone are removed with it, or by the next process if it was killed.
func TestTempDir(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	t.Setenv("TMP", os.Getenv("TMPDIR"))
	killed := filepath.Join(os.TempDir(), "try-1234")
	if err := errors.Join(os.Mkdir(killed, 0o700), os.WriteFile(filepath.Join(killed, "data"), []byte("x"), 0o600)); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			dir, remove, err := vfs.TempDir("try")
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, "data"), []byte("x"), 0o600)
			}
			if err == nil {
				_, err = os.ReadFile(filepath.Join(dir, "data"))
			}
			if err != nil {
				t.Error(err)
				return
			}
			if err := remove(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if left, err := vfs.OS.List(os.TempDir()); err != nil || len(left) > 0 {
		t.Errorf("left: %q, %v", left, err)
	}
}
