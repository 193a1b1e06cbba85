package cuda_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"spillway"
	"spillway/device"
	"spillway/dtype"
	"spillway/generate"
	"spillway/machine"
	"spillway/plan"
	"spillway/planner"
	"spillway/run"
)

// hostCaches is the plan of a model within the most memory in which all its keys and values are in host memory, and
// the plan without a limit. on is nil to plan alone.
func hostCaches(t *testing.T, on []device.Device, g run.Generation) (within, whole *spillway.Run) {
	t.Helper()
	m, err := spillway.Open("small-llama")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	described, err := machine.Parse("h200,host:16GiB")
	if err != nil {
		t.Fatal(err)
	}
	o := spillway.Options{Task: spillway.Generate, Precision: dtype.BF16, Generation: g, Machine: described, On: on}
	if whole, err = m.Plan(o); err != nil {
		t.Fatal(err)
	}
	peak := whole.Plan.Peak()[plan.OnDevice]
	for limit := peak; limit > 0; limit -= peak / 32 {
		o.Budget = limit
		within, err := m.TryPlan(o)
		var fit *planner.FitError
		if errors.As(err, &fit) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		stored, host := 0, 0
		for id, b := range within.Plan.Buffers {
			if b.Class == plan.Cache && b.Home {
				if stored++; within.Plan.TierOf(id) != plan.OnDevice {
					host++
				}
			}
		}
		if host == stored {
			if got := within.Plan.Peak()[plan.OnDevice]; got > limit {
				t.Fatalf("%d bytes within %d", got, limit)
			}
			return within, whole
		}
	}
	t.Fatalf("no plan below %d bytes has its caches in host memory", peak)
	return nil, nil
}

// Sessions whose keys and values are in host memory, since the GPU has no room for them, give the logits of sessions
// with all on the GPU, bit for bit: prompts in chunks, tokens of several sequences at once, forks and truncated ones.
func TestCachesInHostMemory(t *testing.T) {
	gpu := lent(t)
	for _, exact := range []bool{true, false} {
		within, whole := hostCaches(t, []device.Device{gpu}, run.Generation{Context: 512, Streams: 32, Chunk: 64, Exact: exact})
		var logits [2][][]float32
		for i, job := range []*spillway.Run{within, whole} {
			if err := job.Start(); err != nil {
				t.Fatal(err)
			}
			s, err := generate.NewSession(job)
			if err != nil {
				t.Fatal(err)
			}
			step := func() {
				if err := s.Step(context.Background()); err != nil {
					t.Fatal(err)
				}
			}
			all := []generate.Sequence{prompted(t, s, 400, 1), prompted(t, s, 70, 2), prompted(t, s, 9, 3)}
			step()
			fork, err := all[0].Fork()
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, fork)
			for n := range 6 {
				for k, q := range all {
					if q.Ready() {
						logits[i] = append(logits[i], slices.Clone(q.Logits()))
					}
					if n == 3 && k == 1 {
						if err := q.Truncate(40); err != nil {
							t.Fatal(err)
						}
					}
					if err := q.Append(int32(9 + 7*n + 50*k)); err != nil {
						t.Fatal(err)
					}
				}
				step()
			}
			if err := errors.Join(s.Close(), job.Close()); err != nil {
				t.Fatal(err)
			}
		}
		if len(logits[0]) < 20 || len(logits[0]) != len(logits[1]) {
			t.Fatalf("exact %v: %d and %d logits", exact, len(logits[0]), len(logits[1]))
		}
		for n := range logits[0] {
			if !slices.Equal(logits[0][n], logits[1][n]) {
				t.Errorf("exact %v: logits %d differ", exact, n)
			}
		}
	}
}
