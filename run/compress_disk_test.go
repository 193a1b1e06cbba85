package run_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spillway/plan"
	"spillway/train"
)

// A policy compresses states that a disk keeps. A kill before, after and in the midst of
// that, at both instants at which the old state and the new one are there, goes on to the
// bits of a training run in memory.
func TestPoliciesOnDisk(t *testing.T) {
	config := configFile(t, deep(8, 48))
	training := diskTraining{Model: config, Policy: "auto:warmup=4,min_8bit_size=300", Iterations: 8}
	want, _, err := training.run(nil)
	if err != nil {
		t.Fatal(err)
	}
	if plain, _, err := (diskTraining{Model: config, Iterations: 8}).run(nil); err != nil || slices.Equal(plain, want) {
		t.Fatalf("nothing was compressed, or %v", err)
	}
	training.Device, training.Host, training.Mixed = 0, 0, true
	snapshots := t.TempDir()
	midst, both := filepath.Join(snapshots, "midst"), filepath.Join(snapshots, "both")
	training.Disk = t.TempDir()
	training.Notice = func(text string) {
		if strings.Contains(text, "compressed from iteration 5 on") { // and not committed yet
			copyFolder(t, training.Disk, midst)
			copyFolder(t, training.Disk, both)
		}
	}
	got, p, err := training.run(func(r train.Report) {
		if r.Iteration == 4 { // committed, and the old state forgotten
			copyFolder(t, filepath.Join(training.Disk, "compressed"), filepath.Join(both, "compressed"))
		}
	})
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("on disk %v, in memory %v (%v)", got, want, err)
	}
	if !slices.ContainsFunc(p.Arenas, func(a plan.Arena) bool { return a.Tier == plan.OnDisk && a.Bytes > 0 }) {
		t.Error("nothing rested on disk")
	}
	if left := leftIn(t, training.Disk); !slices.Equal(left, []string{"compressed"}) {
		t.Errorf("next to the state there is %v", left)
	}
	training.Notice = nil
	for name, dir := range map[string]string{"before the new commit": midst, "before the old is forgotten": both} {
		training.Disk = dir
		rest, _, err := training.run(nil)
		if err != nil || !slices.Equal(rest, want[4:]) {
			t.Errorf("killed %s: %v, want %v (%v)", name, rest, want[4:], err)
		}
	}
	goOn(t, training, want)
}

// goOn ends a training after every iteration and goes on; the last run saves a checkpoint
// and leaves nothing on the disk.
func goOn(t *testing.T, training diskTraining, want []float64) {
	t.Helper()
	training.Disk = t.TempDir()
	var got []float64
	for i := range want {
		training.Iterations = int64(i + 1)
		if i == len(want)-1 {
			training.Out = t.TempDir()
		}
		some, _, err := training.run(nil)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, some...)
	}
	if !slices.Equal(got, want) {
		t.Errorf("one by one %v, want %v", got, want)
	}
	empty(t, training.Disk)
}

func copyFolder(t *testing.T, from, to string) {
	t.Helper()
	if err := os.RemoveAll(to); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}
