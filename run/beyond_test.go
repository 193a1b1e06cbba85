package run_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"testing"

	"spillway"
	"spillway/device"
	"spillway/device/cpu"
	"spillway/device/sim"
	"spillway/generate"
	"spillway/plan"
	"spillway/run"
)

// A model larger than its device writes what it writes from memory, bit for bit: its weights stream, or
// the CPU computes some of its blocks while others stream, for one text and for several that are
// forked, truncated and closed. Here both are CPUs, which give the same bits.
func TestGeneratingBeyondTheDevice(t *testing.T) {
	s := openStories(t)
	g := run.Generation{Context: 96, Streams: 4, Chunk: 16, Page: 8}
	resident, _ := start(t, open(t, s.dir), spillway.Options{Task: spillway.Generate, Generation: g})
	want := conversation(t, resident, s)
	for _, c := range []struct {
		name, machine string
		budget        int64
		strategies    []string
	}{
		{"streamed", "gpu:1GiB@25GB/s,host:4GiB@update=1MB/s", 850 << 10, []string{"cpu-offload"}},
		{"with the CPU", "gpu:1GiB@1GB/s,host:4GiB@update=3GB/s", 850 << 10, []string{"cpu-offload", "cpu-compute"}},
		{"mostly by the CPU", "gpu:1GiB@100MB/s,host:4GiB@update=3GB/s", 900 << 10, []string{"cpu-offload", "cpu-compute"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dev := sim.NewCapped(cpu.Open(cpu.Options{}), c.budget, sim.Faults{})
			o := spillway.Options{Task: spillway.Generate, Generation: g, Machine: parse(t, c.machine), Budget: c.budget, On: []device.Device{dev}}
			job, err := open(t, s.dir).Plan(o)
			if err != nil {
				t.Fatal(err)
			}
			t.Log(job.Plan.Strategy, job.Plan.Peak())
			if !slices.Equal(job.Plan.Strategies, c.strategies) {
				t.Fatalf("the plan is %s", job.Plan.Strategy)
			}
			var file bytes.Buffer // the plan is the same from a file, and one that was changed is refused
			if err := job.Plan.Write(&file); err != nil {
				t.Fatal(err)
			}
			again, err := plan.Read(bytes.NewReader(file.Bytes()))
			if err != nil {
				t.Fatal(err)
			}
			if job, err = open(t, s.dir).UsePlan(again, o); err != nil {
				t.Fatal(err)
			}
			if by := slices.Contains(c.strategies, "cpu-compute"); by {
				other, err := plan.Read(bytes.NewReader(bytes.Replace(file.Bytes(), []byte(`"cpu_rows":[`), []byte(`"cpu_rows":[3,`), 1)))
				if err == nil {
					_, err = open(t, s.dir).UsePlan(other, o)
				}
				if err == nil {
					t.Error("a plan whose CPU computes other blocks was taken")
				}
			}
			if err := job.Start(); err != nil {
				t.Fatal(err)
			}
			if n := streamedOnce(t, job, s); n != 1 {
				t.Errorf("a prompt of five chunks streamed %.3g times the weights that one of a chunk streams", n)
			}
			if got := conversation(t, job, s); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
			var runs [2]int // by the device, by the CPU
			for _, p := range append([]*plan.Plan{job.Plan}, phase(t, job.Plan, plan.Step(1))) {
				for i := range p.Instructions {
					if s := &p.Instructions[i]; s.Verb == plan.Run {
						runs[min(s.Device, 1)]++
					}
				}
			}
			if by := slices.Contains(c.strategies, "cpu-compute"); by != (runs[1] > 0) {
				t.Errorf("%d runs on the device, %d on the CPU", runs[0], runs[1])
			}
			if err := job.Close(); err != nil {
				t.Error(err)
			}
			if err := dev.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func phase(t *testing.T, p *plan.Plan, name string) *plan.Plan {
	t.Helper()
	view, err := p.Phase(name)
	if err != nil {
		t.Fatal(err)
	}
	return view
}

// streamedOnce computes a prompt of five chunks, and says how often the weights that are not stored on
// the device went to it.
func streamedOnce(t *testing.T, job *spillway.Run, s stories) float64 {
	t.Helper()
	e, err := generate.NewSession(job)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	var away int64
	for i := range job.Plan.Instructions { // of one chunk; a block that shares weights with another brings them again
		if m := &job.Plan.Instructions[i]; m.Verb == plan.Move && job.Plan.Buffers[m.Src].Class == plan.Weight {
			away += job.Plan.Buffers[m.Src].Bytes
		}
	}
	before := weightsIn(job)
	if _, err := e.Add(s.Greedy[:70]); err != nil {
		t.Fatal(err)
	}
	if err := e.Step(context.Background()); err != nil {
		t.Fatal(err)
	}
	return float64(weightsIn(job)-before) / float64(away)
}

// weightsIn is how many bytes of weights went to the device.
func weightsIn(job *spillway.Run) (n int64) {
	for r, moved := range job.Executor().Transfers() {
		if r.Class == plan.Weight && r.To == plan.OnDevice {
			n += moved.Bytes
		}
	}
	return n
}

// conversation generates several texts in turns, and says which tokens and logits came.
func conversation(t *testing.T, job *spillway.Run, s stories) (said string) {
	t.Helper()
	e, err := generate.NewSession(job)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	first, err := e.Add(s.Greedy[:40])
	check(err)
	second, err := e.Add(s.Prompt)
	check(err)
	all := []generate.Sequence{first, second}
	for turn := range 30 {
		check(e.Step(context.Background()))
		for i, q := range all {
			logits := q.Logits()
			next := int32(slices.Index(logits, slices.Max(logits)))
			said += fmt.Sprintf("%d:%d:%x ", i, next, logits[next])
			if turn != 12 || i > 0 {
				check(q.Append(next))
			}
		}
		switch turn {
		case 12: // it has logits that were not taken up
			f, err := first.Fork()
			check(err)
			all = append(all, f)
			check(first.Append(5))
			check(f.Append(6))
		case 20:
			check(second.Truncate(3))
			check(second.Append(7, 8, 9))
		}
	}
	return said
}
