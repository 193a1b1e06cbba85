package generate_test

import (
	"errors"
	"math"
	"testing"

	"spillway"
	"spillway/device"
	"spillway/device/devicetest"
	"spillway/generate"
	"spillway/machine"
	"spillway/op"
	"spillway/run"
)

// fusing is a device that has all fused ops, by their references.
type fusing struct{ *devicetest.Plain }

func (fusing) FusesOps() bool { return true }

// A session on a device that fuses ops gives the logits of one that does not, up to
// rounding, for prompts, for single tokens of several sequences, and for forks, whose pages
// are copied when one of the two writes to them.
func TestFusedSteps(t *testing.T) {
	logits := func(dev device.Device) (list [][]float32) {
		m, err := spillway.Open("../testdata/reference/llama")
		if err != nil {
			t.Fatal(err)
		}
		o := spillway.Options{Task: spillway.Generate, Generation: run.Generation{Context: 32, Streams: 3, Chunk: 8, Page: 4}, On: []device.Device{dev}}
		if o.Machine, err = machine.Parse("cpu:1GiB,host:4GiB"); err != nil {
			t.Fatal(err)
		}
		job, err := m.Plan(o)
		if err == nil {
			err = job.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := errors.Join(job.Close(), m.Close()); err != nil {
				t.Error(err)
			}
		}()
		fused := 0
		for _, p := range job.Plan.Programs {
			for _, n := range p.Graph.Nodes {
				if n.Kind == op.NormHeads || n.Kind == op.NormGated {
					fused++
				}
			}
		}
		if _, fuses := dev.(device.OpFuser); fuses != (fused > 0) {
			t.Errorf("%T: %d fused ops in the plan", dev, fused)
		}
		s, err := generate.NewSession(job)
		if err != nil {
			t.Fatal(err)
		}
		a, b := add(t, s, text(1, 11)), add(t, s, text(2, 5))
		for i := range 3 {
			step(t, s)
			for _, q := range []generate.Sequence{a, b} {
				list = append(list, append([]float32(nil), q.Logits()...))
				if err := q.Append(int32(3 + i)); err != nil {
					t.Fatal(err)
				}
			}
		}
		step(t, s)
		f, err := a.Fork()
		if err != nil {
			t.Fatal(err)
		}
		last := func(q generate.Sequence) { list = append(list, append([]float32(nil), q.Logits()...)) }
		must(t, errors.Join(f.Append(7), a.Append(4)))
		step(t, s)
		last(a)
		last(f)
		must(t, errors.Join(f.Truncate(6), f.Append(1, 2, 3), a.Append(8), b.Close()))
		step(t, s)
		last(a)
		last(f)
		again := add(t, s, f.Tokens()) // what a text that was never forked gives
		step(t, s)
		near(t, "a fork", f.Logits(), again.Logits(), 1e-4)
		return list
	}
	want, got := logits(devicetest.NewPlain(0)), logits(fusing{devicetest.NewPlain(0)})
	for i := range want {
		for k := range want[i] {
			if math.Abs(float64(want[i][k]-got[i][k])) > 1e-4 {
				t.Fatalf("step %d, logit %d is %g, unfused %g", i/2, k, got[i][k], want[i][k])
			}
		}
	}
}
