package finetune

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"spillway/recipe"
)

// A run that goes on keeps the micro-batches it had, whatever would be fastest now, and so
// ends with the bits of one that was never interrupted.
func TestResumedRunsKeepTheirMicroBatches(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "text.txt")
	if err := os.WriteFile(file, []byte(strings.Repeat("some words to learn, over and over\n\n", 60)), 0o644); err != nil {
		t.Fatal(err)
	}
	run := func(settings map[string]string) (*Run, Result) {
		t.Helper()
		r := recipe.New()
		for name, value := range settings {
			if err := r.Flags().Set(name, value); err != nil {
				t.Fatal(err)
			}
		}
		for name, value := range map[string]string{"model": "tiny-llama", "data": file, "device": "cpu", "seq-len": "32", "batch-size": "4"} {
			if err := r.Flags().Set(name, value); err != nil {
				t.Fatal(err)
			}
		}
		made, err := Prepare(r, Options{})
		if err != nil {
			t.Fatal(err)
		}
		result, err := made.Train(t.Context())
		if err := made.Close(); err != nil {
			t.Fatal(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		return made, result
	}
	for _, size := range []string{"1", "2", "4"} {
		whole, cut := filepath.Join(dir, "whole"+size), filepath.Join(dir, "cut"+size)
		_, want := run(map[string]string{"out": whole, "max-steps": "6", "micro-batch-size": size})
		run(map[string]string{"out": cut, "max-steps": "3", "micro-batch-size": size})
		made, got := run(map[string]string{"out": cut, "max-steps": "6", "resume": "true"})
		if made.Job.Plan.MicroBatches*int(made.Job.Plan.MicroBatchSize) != 4 || made.microBatchSize != made.Job.Plan.MicroBatchSize || got.LossLast != want.LossLast {
			t.Errorf("micro-batches of %s: resumed with %d, the last loss is %v, without an interruption %v", size, made.Job.Plan.MicroBatchSize, got.LossLast, want.LossLast)
		}
	}
}
