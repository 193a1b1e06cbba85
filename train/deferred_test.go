package train_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"spillway"
	"spillway/checkpoint"
	"spillway/data"
	plans "spillway/plan"
	"spillway/planner/strategy"
	"spillway/train"
)

// deferredJob defers its clipped updates to the next iteration.
func deferredJob(t *testing.T) *spillway.Run {
	t.Helper()
	job := plan(t, withDropout, spillway.Options{MicroBatchSize: 2, MicroBatches: 2, Packed: true, Evaluates: true, Clip: 0.3, Choose: func(slabs, blocks int) strategy.Choice {
		c := strategy.Uniform(true, true, strategy.SaveNone, 2)(slabs, blocks)
		c.DelayedUpdates = true
		return c
	}})
	if !slices.ContainsFunc(job.Plan.Instructions, func(s plans.Instruction) bool { return s.Deferred }) {
		t.Fatalf("%s has no deferred updates", job.Plan.Strategy)
	}
	return job
}

// Runs with deferred updates save, evaluate, end and resume, with the same bits as a run
// in which everything stays on the device and nothing is deferred.
func TestDeferredUpdatesAreInCheckpoints(t *testing.T) {
	run := func(job *spillway.Run, dir string, every, until int64) train.Result {
		t.Helper()
		c := saving(t, dir, every)
		c.Iterations = until
		c.Evaluate = &train.Evaluation{Every: 3, Feed: feed(t, data.Config{Epochs: 1, InOrder: true}), Batches: 2}
		r, err := train.Run(context.Background(), job, feed(t, data.Config{Seed: 8}), c)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	onDevice := job(t)
	onDevice.Options.Clip = 0.3
	want := run(onDevice, t.TempDir(), 0, 8)
	dir := t.TempDir()
	run(deferredJob(t), dir, 2, 5)
	got := run(deferredJob(t), dir, 0, 8)
	if got.Loss != want.Loss || got.Best.Loss != want.Best.Loss {
		t.Errorf("%+v, on the device %+v", got, want)
	}
	for _, name := range []string{"model.safetensors", checkpoint.StateName} {
		a, err := os.ReadFile(filepath.Join(want.Checkpoint, name))
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(got.Checkpoint, name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(a, b) {
			t.Errorf("%s is another", name)
		}
	}
}
