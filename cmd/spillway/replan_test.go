package main

import (
	"context"
	"encoding/json"
	"errors"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"spillway/plan"
	"spillway/planner"
	"spillway/view"
)

// A run is planned again for other limits of memory, as the dashboard asks: in another process,
// with the same plan for the same limit, another one for less, and what is missing for too little.
func TestReplan(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	trainTiny(t, "--data", prose(t), "--max-steps", "3", "--out", dir, "--device", "cpu").object(t)
	run, err := view.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	was, err := run.Plan()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(asProgram, "1")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	peak := was.Peak()[plan.OnDevice]
	same, err := replan(ctx, dir, 2*peak)
	if err != nil {
		t.Fatal(err)
	}
	if same.Strategy != was.Strategy || same.MicroBatches != was.MicroBatches || same.Seq != was.Seq {
		t.Errorf("with %d bytes: %s, the run has %s", 2*peak, same.Strategy, was.Strategy)
	}
	less, err := replan(ctx, dir, peak*7/10)
	if err != nil {
		t.Fatal(err)
	}
	if got := less.Peak()[plan.OnDevice]; got > peak*7/10 || less.Strategy == was.Strategy {
		t.Errorf("with %d bytes: %s takes %d", peak*7/10, less.Strategy, got)
	}
	var misfit *planner.FitError
	if _, err := replan(ctx, dir, 1<<10); !errors.As(err, &misfit) || misfit.Needed < 1<<10 {
		t.Errorf("with a kilobyte: %v", err)
	}
	if _, err := replan(ctx, t.TempDir(), 1<<30); err == nil || !strings.Contains(err.Error(), "a run is a folder that train --out wrote") {
		t.Errorf("of no run: %v", err)
	}
	cancel()
	if _, err := replan(ctx, dir, peak); err == nil {
		t.Error("a question that nobody waits for is answered")
	}
	r := command(t, "replan", dir, "--max-memory", "1GiB", "--json")
	var answer replanned
	if err := json.Unmarshal([]byte(r.out), &answer); err != nil || answer.Plan.Strategy != was.Strategy {
		t.Errorf("%v: %.200s%s", err, r.out, r.err)
	}
	if r := command(t, "replan", dir, "--max-memory", "64MiB"); r.code != exitOK || !strings.Contains(r.out, "per step") {
		t.Errorf("%d: %s%s", r.code, r.out, r.err)
	}
	if r := command(t, "replan", dir, "--max-memory", "much"); r.code != exitUsage {
		t.Errorf("%d: %s%s", r.code, r.out, r.err)
	}
}

// What is started gently has the lowest priority, and this program the one it had.
func TestStartGently(t *testing.T) {
	niceness, err := exec.LookPath("nice")
	if err != nil || runtime.GOOS != "linux" {
		t.Skip("there is no program that prints its priority")
	}
	for range 3 {
		var out strings.Builder
		cmd := exec.Command(niceness)
		cmd.Stdout = &out
		if err := startGently(cmd); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil || out.String() != "19\n" {
			t.Errorf("%v: the priority is %q", err, out.String())
		}
	}
	for range 20 {
		text, err := exec.Command(niceness).Output()
		if err != nil || string(text) == "19\n" {
			t.Fatalf("%v: this program's priority is %q", err, text)
		}
	}
}
