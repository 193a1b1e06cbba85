package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"spillway/store"
)

// A training run from disk shows the disk in its plan, gives the bits of one in memory
// and leaves nothing on the disk.
func TestTrainFromDisk(t *testing.T) {
	text, disk := prose(t), filepath.Join(t.TempDir(), "not", "yet")
	whole, tight := filepath.Join(t.TempDir(), "whole"), filepath.Join(t.TempDir(), "tight")
	trainTiny(t, "--data", text, "--max-steps", "3", "--out", whole).object(t)
	limits := []string{"--disk", disk, "--max-memory", "1800KiB", "--max-host-memory", "2400KiB"}
	r := command(t, append([]string{"train", "tiny-llama", "--micro-batch-size", "2", "--seq-len", "64", "--learning-rate", "5e-3", "--data", text, "--max-steps", "3", "--out", tight}, limits...)...)
	if r.code != exitOK || !strings.Contains(r.out, "disk offload of ") || !strings.Contains(r.out, "host      disk") {
		t.Fatalf("exit code %d: %s%s", r.code, r.out, r.err)
	}
	a, _ := sums(t, filepath.Join(whole, "step-00000003"))
	b, _ := sums(t, filepath.Join(tight, "step-00000003"))
	for name := range a {
		if a[name] != b[name] {
			t.Errorf("%s differs", name)
		}
	}
	left, err := os.ReadDir(disk)
	if err != nil || len(left) > 0 {
		t.Errorf("left on disk: %v, %v", left, err)
	}
}

// The evaluation of a run from disk has its weights there too, and leaves nothing either.
func TestEvaluateFromDisk(t *testing.T) {
	disk := t.TempDir()
	v := trainTiny(t, "--data", prose(t), "--max-steps", "2", "--eval-steps", "1", "--out", filepath.Join(t.TempDir(), "run"),
		"--disk", disk, "--max-memory", "2600KiB", "--max-host-memory", "3000KiB", "--max-grad-norm", "1").object(t)
	if at(t, v, "steps") != 2.0 || at(t, v, "eval_loss") == 0.0 || at(t, v, "predicted_peak_bytes") != at(t, v, "measured_peak_bytes") {
		t.Errorf("%v", v)
	}
	if left, err := os.ReadDir(disk); err != nil || len(left) > 0 {
		t.Errorf("left on disk: %v, %v", left, err)
	}
}

// The state of a run is continued only when asked to.
func TestTrainRefusesADiskInUse(t *testing.T) {
	disk, text := t.TempDir(), prose(t)
	d, err := store.Open(store.Options{Dir: disk, Limit: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	m, err := d.Alloc(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{d.Begin(0), d.Commit(41), m.Free(), d.Close()} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		flags string
		code  int
		says  string
	}{
		{"--disk " + disk, exitFailed, "holds step 41 of a run: give --resume"},
		{"--disk " + disk + " --resume", exitFailed, "plan.json"},
		{"--max-host-memory much", exitUsage, "24GiB"},
		{"--journal-every -1", exitUsage, "at least 0"},
	} {
		r := trainTiny(t, append(strings.Fields(c.flags), "--data", text, "--max-steps", "1", "--out", filepath.Join(t.TempDir(), "run"))...)
		if r.code != c.code || !strings.Contains(r.err, c.says) {
			t.Errorf("%s: exit code %d: %s", c.flags, r.code, r.err)
		}
	}
	if r := command(t, "plan", "tiny-llama", "--disk", disk, "--machine", "gpu:24GiB"); r.code != exitUsage || !strings.Contains(r.err, "disk:2TiB") {
		t.Errorf("a folder of another machine: %d %s", r.code, r.err)
	}
	if r := command(t, "plan", "llama-3-8b", "--seq-len", "64", "--machine", "cpu:8GiB,host:16GiB,disk:2TiB"); r.code != exitOK || !strings.Contains(r.out, "disk offload of ") {
		t.Errorf("a described disk: %d %s%s", r.code, r.out, r.err)
	}
}
