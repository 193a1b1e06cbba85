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
