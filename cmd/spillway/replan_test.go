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

	"spillway/plan"
	"spillway/planner"
	"spillway/view"
)

// recordedPlan is the plan in the event log of a run.
func recordedPlan(t *testing.T, dir string) *plan.Plan {
	t.Helper()
	run, err := view.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	p, err := run.Plan()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A run is planned again for other limits of memory, as the dashboard asks: in another process,
// with the same plan for the same limit, another one for less, and what is missing for too little.
func TestReplan(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	trainTiny(t, "--data", prose(t), "--max-steps", "3", "--out", dir, "--device", "cpu").object(t)
	was := recordedPlan(t, dir)
	t.Setenv(asProgram, "1")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	peak := was.Peak()[plan.OnDevice]
	made, err := replan(ctx, dir, 2*peak)
	if err != nil {
		t.Fatal(err)
	}
	same := made.Plan
	if same.Strategy != was.Strategy || same.MicroBatches != was.MicroBatches || same.Seq != was.Seq {
		t.Errorf("with %d bytes: %s, the run has %s", 2*peak, same.Strategy, was.Strategy)
	}
	made, err = replan(ctx, dir, peak*7/10)
	if err != nil {
		t.Fatal(err)
	}
	less := made.Plan
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

// A run that generates is planned again as it was asked for, from any folder. Its own limit gives the
// same plan with the same cache, but for workspaces, since no device is opened. Less memory gives
// weights that stream and fewer tokens a second, too little an error that says what is missing.
func TestReplanGeneration(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	generatedObject(t, "generate", "../../testdata/reference/llama", "--tokens", "1,2,3,4,5", "--max-new-tokens", "6", "--device", "cpu", "--ignore-eos", "--context", "64", "--num-samples", "2", "--temperature", "1", "--cache-type", "int8", "--out", dir)
	was := recordedPlan(t, dir)
	t.Setenv(asProgram, "1")
	t.Chdir(t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	peak := was.Peak()[plan.OnDevice]
	same, err := replan(ctx, dir, 4*peak)
	if err != nil {
		t.Fatal(err)
	}
	if same.Plan.Strategy != was.Strategy || *same.Plan.Cache != *was.Cache || same.Plan.Peak()[plan.OnDevice] > peak || len(same.Plan.Phases) != len(was.Phases) {
		t.Errorf("%s with %+v takes %d; the run has %s with %+v and takes %d", same.Plan.Strategy, same.Plan.Cache, same.Plan.Peak()[plan.OnDevice], was.Strategy, was.Cache, peak)
	}
	if g := same.Generation; g == nil || g.Streams != 2 || len(g.Decode) != 2 || g.Decode[1].Half.TokensPerSec <= g.Decode[0].Half.TokensPerSec/2 {
		t.Errorf("%+v", same.Generation)
	}
	less, err := replan(ctx, dir, peak*8/10)
	if err != nil {
		t.Fatal(err)
	}
	if got := less.Plan.Peak()[plan.OnDevice]; got > peak*8/10 || less.Generation.Decode[0].Half.Seconds < same.Generation.Decode[0].Half.Seconds {
		t.Errorf("%s takes %d bytes and %v s for a token, with all memory %v", less.Plan.Strategy, got, less.Generation.Decode[0].Half.Seconds, same.Generation.Decode[0].Half.Seconds)
	}
	var all, elsewhere int64
	for _, w := range view.WeightsOf(less.Plan) {
		if all += w.Bytes; w.Tier != plan.OnDevice {
			elsewhere += w.Bytes
		}
	}
	if had := view.WeightsOf(was); len(had) != 1 || had[0].Tier != plan.OnDevice || had[0].Bytes != all || elsewhere == 0 {
		t.Errorf("weights are stored as %v, in the run as %v", view.WeightsOf(less.Plan), had)
	}
	var misfit *planner.FitError
	if _, err := replan(ctx, dir, 1<<10); !errors.As(err, &misfit) {
		t.Errorf("with a kilobyte: %v", err)
	}
	r := command(t, "replan", dir, "--max-memory", "64MiB")
	for _, want := range []string{"1 sequence: ", "2 sequences: ", "first token", "weights"} {
		if !strings.Contains(r.out, want) {
			t.Errorf("no %q in %s%s", want, r.out, r.err)
		}
	}
}

// What is started gently has the lowest priority, and this program the one it had.
func TestStartGently(t *testing.T) {
	niceness, err := exec.LookPath("nice")
	if err != nil || runtime.GOOS != "linux" {
		t.Skip("there is no program that prints its priority")
	}
	own, err := exec.Command(niceness).Output()
	if err != nil {
		t.Fatal(err)
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
		if err != nil || string(text) != string(own) {
			t.Fatalf("%v: this program's priority is %q, it was %q", err, text, own)
		}
	}
}
