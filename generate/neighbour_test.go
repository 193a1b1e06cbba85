package generate_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"spillway"
	"spillway/device"
	"spillway/device/cpu"
	"spillway/device/sim"
	"spillway/generate"
	"spillway/machine"
	"spillway/plan"
	"spillway/planner/strategy"
	"spillway/run"
)

// Memory that a neighbour takes while a text is made is missed by nobody: all that is needed is taken before the first token. A copy
// or a kernel that fails in the middle ends the text with its error: no token is made of what did not come.
func TestNeighbours(t *testing.T) {
	g := run.Generation{Context: 64, Chunk: 16}
	prompt := text(3, 9)
	want := logitsFrom(t, session(t, "llama", g), prompt, 12)
	calm, dev := streamedSession(t, g, sim.Faults{})
	before := dev.Counts()
	for i, logits := range logitsFrom(t, calm, prompt, 12) {
		if !slices.Equal(logits, want[i]) {
			t.Fatalf("logits of token %d are others than with weights on the device", i)
		}
	}
	if after := dev.Counts(); after != before {
		t.Errorf("memory was %+v when the text began, and %+v when it ended", before, after)
	}
	fault := errors.New("the link is down")
	for _, f := range []sim.Faults{{Copy: 1, Err: fault}, {Copy: 2, Err: fault}, {Copy: 19, Err: fault}, {Copy: 40, Err: fault}, {Launch: 1, Err: fault}, {Launch: 12, Err: fault}} {
		e, _ := streamedSession(t, g, f)
		q := add(t, e, prompt)
		failed := false
		for _, logits := range want {
			if err := e.Step(context.Background()); err != nil {
				if failed = true; !errors.Is(err, fault) {
					t.Errorf("%+v ends the text with %v", f, err)
				}
				if q.Ready() {
					t.Errorf("%+v: there are logits all the same", f)
				}
				break
			}
			if !slices.Equal(q.Logits(), logits) {
				t.Fatalf("%+v: other logits instead of an error", f)
			}
			must(t, q.Append(next(logits)))
		}
		if !failed {
			t.Errorf("%+v was not noticed in %d tokens", f, len(want))
		}
	}
}

// streamedSession generates with weights that come from host memory in every step, on a device whose operations fail on demand,
// counted from when the weights are loaded.
func streamedSession(t *testing.T, g run.Generation, f sim.Faults) (*generate.Session, *sim.Capped) {
	t.Helper()
	m, err := spillway.Open("../testdata/reference/llama")
	must(t, err)
	on, err := machine.Parse("cpu:1GiB,host:4GiB")
	must(t, err)
	dev := sim.NewCapped(cpu.Open(cpu.Options{}), 1<<30, sim.Faults{})
	job, err := m.Plan(spillway.Options{Task: spillway.Generate, Generation: g, Machine: on, On: []device.Device{dev}, Constraints: strategy.Constraints{Weights: plan.OnHost}})
	must(t, err)
	must(t, job.Start())
	t.Cleanup(func() { must(t, errors.Join(job.Close(), dev.Close(), m.Close())) })
	e, err := generate.NewSession(job)
	must(t, err)
	dev.Fail(f)
	return e, dev
}
