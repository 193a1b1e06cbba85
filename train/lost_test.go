package train_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spillway"
	"spillway/checkpoint"
	"spillway/data"
	"spillway/internal/vfs"
	"spillway/train"
)

// blocked puts a file where a folder was, so that nothing can be saved to it.
func blocked(t *testing.T, dir string) {
	t.Helper()
	if err := errors.Join(os.RemoveAll(dir), os.WriteFile(dir, nil, 0o644)); err != nil {
		t.Fatal(err)
	}
}

// A save that fails does not end a run: it is tried again, and the run ends as if nothing
// had happened.
func TestFailedSavesAreTriedAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	plain := saving(t, t.TempDir(), 0)
	plain.Iterations = 12
	want := runTo(t, context.Background(), plain)
	var notices []string
	c := saving(t, dir, 2)
	c.Iterations = 12
	c.Notice = func(text string) { notices = append(notices, text) }
	c.Report = func(r train.Report) {
		switch r.Iteration {
		case 3:
			blocked(t, dir)
		case 6:
			if err := os.Remove(dir); err != nil {
				t.Error(err)
			}
		}
	}
	got := runTo(t, context.Background(), c)
	if len(notices) == 0 || !strings.Contains(notices[0], "saving the checkpoint of iteration 4") || !strings.Contains(notices[0], "the run goes on, and tries again after step 5") {
		t.Errorf("notices %q", notices)
	}
	if got.Loss != want.Loss || got.Checkpoint != (checkpoint.Dir{Path: dir}).At(12) {
		t.Errorf("%+v, without failures %+v", got, want)
	}
	if _, err := checkpoint.Open((checkpoint.Dir{Path: dir}).At(10)); err != nil {
		t.Errorf("saves that worked again: %v", err)
	}
}

// The last checkpoint is saved elsewhere if it cannot be saved to its folder, and a run
// resumes from there to the same bits.
func TestLastCheckpointIsSavedElsewhere(t *testing.T) {
	train.SetSaveWait(1)
	dir, other := filepath.Join(t.TempDir(), "run"), t.TempDir()
	plain := saving(t, t.TempDir(), 0)
	plain.Iterations = 8
	want := runTo(t, context.Background(), plain)
	c := saving(t, dir, 0)
	c.Iterations, c.Save.Elsewhere = 5, []string{filepath.Join(dir, "no folder"), other}
	c.Report = func(r train.Report) {
		if r.Iteration == 2 {
			blocked(t, dir)
		}
	}
	r, err := train.Run(context.Background(), job(t), feed(t, data.Config{Seed: 8}), c)
	var elsewhere *train.SavedElsewhereError
	if !errors.As(err, &elsewhere) || elsewhere.Path != r.Checkpoint || !strings.HasPrefix(r.Checkpoint, other) {
		t.Fatalf("%+v, %v", r, err)
	}
	if !strings.Contains(err.Error(), "--resume") {
		t.Errorf("%v does not say how to resume", err)
	}
	c = saving(t, filepath.Dir(r.Checkpoint), 0)
	c.Iterations = 8
	if got := runTo(t, context.Background(), c); got.Loss != want.Loss {
		t.Errorf("resumed to a loss of %v, at once %v", got.Loss, want.Loss)
	}
}

// A folder that cannot be written, is too small or is in use is found before the first
// iteration.
func TestOutputIsCheckedFirst(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	held := checkpoint.Dir{Path: t.TempDir()}
	release, err := held.Claim()
	if err != nil {
		t.Fatal(err)
	}
	for says, d := range map[string]checkpoint.Dir{
		"making the folder":           {Path: filepath.Join(file, "run")},
		"is being written by process": held,
		"bytes) are free":             {Path: "/", FS: vfs.NewMemory(100)},
	} {
		c := train.Config{Iterations: 3, Save: &train.Save{Dir: d}, Report: func(train.Report) { t.Errorf("%s: trained", says) }}
		if _, err := train.Run(context.Background(), job(t), feed(t, data.Config{Seed: 8}), c); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
	if err := release(); err != nil {
		t.Error(err)
	}
	if names, err := os.ReadDir(held.Path); err == nil || len(names) > 0 {
		t.Errorf("an empty folder that was claimed holds %v, %v", names, err)
	}
}

// After a fall-back from a damaged checkpoint the good ones are kept, not the damaged one.
func TestDamagedCheckpointsDoNotCount(t *testing.T) {
	dir := t.TempDir()
	c := saving(t, dir, 2)
	c.Iterations, c.Save.Dir.Keep = 6, 2
	last := runTo(t, context.Background(), c) // leaves 4 and 6
	path := filepath.Join(last.Checkpoint, "model.safetensors")
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	raw[len(raw)-1] ^= 1
	if err := os.WriteFile(path, raw, 0o644); err != nil {
		t.Fatal(err)
	}
	c.Iterations = 5 // from 4 on, short of replacing 6
	runTo(t, context.Background(), c)
	found, err := checkpoint.Dir{Path: dir}.List()
	if err != nil {
		t.Fatal(err)
	}
	var good []int64
	for _, e := range found {
		if c, err := checkpoint.Open(e.Path); err == nil {
			good = append(good, e.Iteration)
			c.Close() // opened for reading
		}
	}
	if slices.Sort(good); !slices.Equal(good, []int64{4, 5}) {
		t.Errorf("good checkpoints of %v are left, want 4 and 5", good)
	}
}

// A run with other settings is refused with a line for each that differs, and goes on with
// them where that is allowed and possible.
func TestResumingWithOtherSettings(t *testing.T) {
	dir := t.TempDir()
	c := saving(t, dir, 0)
	c.Iterations = 3
	runTo(t, context.Background(), c)
	resume := func(o string, change func(*train.Config)) (train.Result, []string, error) {
		c := saving(t, dir, 0)
		var notices []string
		c.Iterations, c.Notice = 5, func(text string) { notices = append(notices, text) }
		change(&c)
		other := plan(t, withDropout, spillway.Options{MicroBatchSize: 2, MicroBatches: 2, Packed: true, Clip: 1, Optimizer: optimizer(t, o)})
		r, err := train.Run(context.Background(), other, feed(t, data.Config{Seed: 8}), c)
		return r, notices, err
	}
	longer := func(c *train.Config) { c.Schedule.Total = 60 }
	_, _, err := resume("adamw:lr=0.5", longer)
	for _, says := range []string{
		"\n  the learning rate (--learning-rate): 0.001 in that run, 0.5 now\n",
		"\n  the length of the schedule (it follows --max-steps or --epochs): 30 in that run, 60 now\n",
		"--allow-changes",
	} {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v does not say %q", err, says)
		}
	}
	if _, _, err := resume("lion", func(c *train.Config) { c.AllowChanges = true }); err == nil || !strings.Contains(err.Error(), "the optimizer (--optimizer) cannot change") && !strings.Contains(err.Error(), "cannot change within a run") {
		t.Errorf("with another optimizer: %v", err)
	}
	r, notices, err := resume("adamw:lr=0.5", func(c *train.Config) { longer(c); c.AllowChanges = true })
	if err != nil || r.Iterations != 5 || len(notices) != 2 || !strings.Contains(notices[0], "0.001 in that run, 0.5 now") {
		t.Errorf("%+v, notices %q, %v", r, notices, err)
	}
}

// Canonical sums are part of what a run is, and so are their micro-batches.
func TestResumingCanonicalSums(t *testing.T) {
	dir := t.TempDir()
	carryOn := func(to int64, o spillway.Options) error {
		c := saving(t, dir, 0)
		c.Iterations = to
		o.Packed, o.Clip = true, 1
		_, err := train.Run(context.Background(), plan(t, withDropout, o), feed(t, data.Config{Seed: 8}), c)
		return err
	}
	canonical := spillway.Options{MicroBatchSize: 2, MicroBatches: 2, CanonicalSums: true}
	if err := carryOn(2, canonical); err != nil {
		t.Fatal(err)
	}
	for says, o := range map[string]spillway.Options{
		"canonical sums (--canonical-sums): true in that run, none now":                  {MicroBatchSize: 2, MicroBatches: 2},
		"the micro-batches of canonical sums (--micro-batch-size): 2 in that run, 1 now": {MicroBatchSize: 1, MicroBatches: 4, CanonicalSums: true},
	} {
		if err := carryOn(3, o); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v does not say %q", err, says)
		}
	}
	if err := carryOn(3, canonical); err != nil {
		t.Error(err)
	}
}
