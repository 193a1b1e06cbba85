package journal_test

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"spillway/store"
	"spillway/store/journal"
)

// tensors is what a run trains and has in memory.
type tensors []byte

func (tensors) Flush() error                          { return nil }
func (t tensors) Read(use func([]byte) error) error   { return use(t) }
func (t tensors) Write(fill func([]byte) error) error { return fill(t) }

// start opens the folder as a run does when it starts.
func start(t *testing.T, dir string, of tensors) (*journal.Journal, func()) {
	t.Helper()
	bytes := journal.TapeBytes(int64(len(of)))
	disk, err := journal.OpenDisk(dir, bytes, nil)
	if err != nil {
		t.Fatal(err)
	}
	last, err := journal.Recover(disk)
	if err != nil {
		t.Fatal(err)
	}
	j, err := journal.New(disk, dir, last, bytes, of)
	if err != nil {
		t.Fatal(err)
	}
	return j, func() {
		t.Helper()
		if err := errors.Join(j.Close(), journal.CloseDisk(disk, dir)); err != nil {
			t.Fatal(err)
		}
	}
}

// What was committed is there again, what had only begun is not.
func TestCommittedIterationsAreRecovered(t *testing.T) {
	dir, now := t.TempDir(), tensors("weights of iteration 0")
	j, end := start(t, dir, now)
	if _, _, ok := j.Recovered(); ok {
		t.Error("a new folder holds an iteration")
	}
	if err := errors.Join(j.Commit(0, []byte("at the start")), j.Begin(1)); err != nil {
		t.Fatal(err)
	}
	copy(now, "weights of iteration 1")
	end() // a kill: iteration 1 was not committed

	again := make(tensors, len(now))
	j, end = start(t, dir, again)
	iteration, state, ok := j.Recovered()
	if !ok || iteration != 0 || string(state) != "at the start" || string(again) != "weights of iteration 0" {
		t.Errorf("recovered iteration %d (%t), %q, %q", iteration, ok, state, again)
	}
	if err := j.Discard(); err != nil {
		t.Error(err)
	}
	end()
	if _, err := store.LastCommit(dir); !errors.Is(err, store.ErrNoCommit) {
		t.Errorf("after discarding the folder holds something: %v", err)
	}
}

// A journal that replaces an older one removes it with its first commit, not before.
func TestOlderJournalsAreRemovedOnceReplaced(t *testing.T) {
	dir, now := t.TempDir(), tensors("weights and states")
	j, end := start(t, dir, now)
	if err := j.Commit(0, nil); err != nil {
		t.Fatal(err)
	}
	if err := journal.SavePlan(dir, func(w io.Writer) error { _, err := io.WriteString(w, "the plan"); return err }); err != nil {
		t.Fatal(err)
	}
	end()
	inner := journal.CompressedDir(dir)
	j, end = start(t, inner, now[:9])
	j = j.Replaces(dir)
	if last, err := store.LastCommit(dir); err != nil || last != 0 {
		t.Errorf("before the first commit the older journal has iteration %d, %v", last, err)
	}
	if raw, err := journal.ReadPlan(dir); err != nil || !bytes.Equal(raw, []byte("the plan")) {
		t.Errorf("its plan is %q, %v", raw, err)
	}
	if err := j.Commit(1, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := store.LastCommit(dir); !errors.Is(err, store.ErrNoCommit) {
		t.Errorf("after the first commit the older journal is there: %v", err)
	}
	if last, err := store.LastCommit(inner); err != nil || last != 1 {
		t.Errorf("the new journal has iteration %d, %v", last, err)
	}
	if err := j.Discard(); err != nil {
		t.Error(err)
	}
	end()
}
