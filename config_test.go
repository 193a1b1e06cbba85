package spillway_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"spillway"
	"spillway/executor"
	"spillway/plan"
	"spillway/trace"
	"spillway/units"
)

// fill is the share of a device that a wrapped model's plan takes.
func fill(s spillway.MemoryStats, of int64) float64 {
	return float64(s.Devices[0].Predicted) / float64(of)
}

// kept sums what modules have of activations on the device.
func kept(s spillway.MemoryStats) (n int64) {
	for _, m := range s.Modules {
		n += m.Activations.Device
	}
	return n
}

// away sums weights and optimizer state that rest off the device.
func away(s spillway.MemoryStats) (n int64) {
	for _, m := range s.Modules {
		n += m.Weights.Host + m.OptimizerState.Host
	}
	return n
}

// here sums weights and optimizer state that rest on the device.
func here(s spillway.MemoryStats) (n int64) {
	for _, m := range s.Modules {
		n += m.Weights.Device + m.OptimizerState.Device
	}
	return n
}

// Thresholds decide when activations are recomputed and when weights and optimizer
// state leave, with the memory unchanged, and change no bit.
func TestThresholds(t *testing.T) {
	for _, o := range ownModels() {
		peak, losses, _, _ := standard(t, o, 3)
		run := func(checkpoint, offload float64) (spillway.MemoryStats, string) {
			c := described(t)
			c.MaxMemory, c.MicroBatches, c.Bounds.SaveBelow, c.Bounds.StayBelow = fmt.Sprint(peak), 1, checkpoint, offload
			w := wrap(t, o.net(), c)
			if got := step(t, w, o.batch, 3); !slices.Equal(got, losses) {
				t.Errorf("%s, thresholds %v and %v: losses %v, want %v", o.name, checkpoint, offload, got, losses)
			}
			return w.MemoryStats(), w.Strategy()
		}
		plain, strategy := run(1, 1)
		if away(plain) > 0 || fill(plain, peak) != 1 {
			t.Errorf("%s: with thresholds of 1 the plan is %s", o.name, strategy)
		}
		smaller, strategy := run(0.1, 1)
		if kept(smaller) >= kept(plain) || away(smaller) > 0 || !strings.Contains(strategy, "checkpointing") {
			t.Errorf("%s, to be checkpointed from 0.1 on: %s keeps %d of %d bytes", o.name, strategy, kept(smaller), kept(plain))
		}
		empty, strategy := run(1, 0.1)
		if away(empty) == 0 || !strings.Contains(strategy, "offload") {
			t.Errorf("%s, to be offloaded from 0.1 on: %s", o.name, strategy)
		}
		half, strategy := run(1, 0.75)
		if f := fill(half, peak); f > 0.75 && away(half) < here(plain) {
			t.Errorf("%s, to be offloaded from 0.75 on: %s fills %v, yet only %d of %d bytes rest elsewhere", o.name, strategy, f, away(half), here(plain))
		}
	}
}

// PrefetchSize is the window: more of it takes more of the device.
func TestPrefetchSizeIsTheWindow(t *testing.T) {
	o := ownModels()[2]
	var last int64
	for _, n := range []int{1, 2, 4} {
		c := described(t)
		c.Strategy, c.Bounds.Prefetch = "cpu-offload", n
		w := wrap(t, o.net(), c)
		forward(t, w, o.inputs())
		if want := fmt.Sprintf("prefetch depth %d", n); !strings.Contains(w.Strategy(), want) {
			t.Errorf("%s, want %s", w.Strategy(), want)
		}
		need := w.MemoryStats().Devices[0].Predicted
		if need <= last {
			t.Errorf("a window of %d takes %d bytes, a smaller one %d", n, need, last)
		}
		last = need
	}
}

// MinGPUMemory is left free, and MaxMemory not exceeded, of devices and host.
func TestMemoryIsLeftFree(t *testing.T) {
	o := ownModels()[2]
	peak, _, _, _ := standard(t, o, 1)
	c := described(t)
	c.Devices = []string{fmt.Sprintf("cpu:threads=1,limit=%d", peak)}
	c.ReservedMemory = units.Bytes(peak / 4)
	w := wrap(t, o.net(), c)
	step(t, w, o.batch, 1)
	if d := w.MemoryStats().Devices[0]; d.Limit-d.Peak < peak/4 || d.Budget != peak-peak/4 {
		t.Errorf("%+v, of which %d were to be left free", d, peak/4)
	}
	c = described(t)
	c.MaxMemory = fmt.Sprintf("0=%d,cpu=%d", peak*3/4, peak)
	v := wrap(t, o.net(), c)
	step(t, v, o.batch, 1)
	if s := v.MemoryStats(); s.Devices[0].Reserved > peak*3/4 || s.Host.Reserved > peak || s.Host.Reserved == 0 {
		t.Errorf("%+v and %+v of %d", s.Devices[0], s.Host, peak)
	}
	c.MaxMemory, c.MicroBatches = fmt.Sprintf("0=%d,cpu=%d", peak*3/4, 1000), 1
	c.BatchSize, c.Seq = 4, 10
	if _, err := spillway.Wrap(o.net(), c); err == nil || !strings.Contains(err.Error(), "host memory") && !strings.Contains(err.Error(), "device memory") {
		t.Errorf("offloading to a host of 1000 bytes: %v", err)
	}
}

// Profiles are taken every so many passes, not module calls, and tell every step.
func TestProfiles(t *testing.T) {
	o := ownModels()[0]
	c := described(t)
	c.ProfileInterval = 3
	w := wrap(t, o.net(), c)
	for i := 1; i <= 7; i++ {
		step(t, w, o.batch, 1)
		p := w.Profile()
		if p.Taken != i/3 || p.Pass != i/3*3 {
			t.Errorf("after %d passes: profile %d of pass %d", i, p.Taken, p.Pass)
		}
	}
	p := w.Profile()
	runs := 0
	for _, e := range p.Events {
		if e.Verb == trace.Run {
			runs++
		}
	}
	if len(p.Seconds) != 4 || runs != 2*4-1 || p.Seconds["layer.0"] <= 0 {
		t.Errorf("%d runs, seconds %v", runs, p.Seconds)
	}
	c.ProfileInterval = 0
	v := wrap(t, o.net(), c)
	if step(t, v, o.batch, 3); v.Profile().Taken != 0 {
		t.Error("profiles that nobody asked for")
	}
}

// Batches are cut into micro-batches only where they do not fit whole, and that is
// said.
func TestBatchesAreCutToFit(t *testing.T) {
	o := ownModels()[2]
	peak, losses, _, _ := standard(t, o, 3)
	var notices []string
	c := described(t)
	c.Strategy, c.MaxMemory, c.Notice = "standard", fmt.Sprint(peak-1), func(text string) { notices = append(notices, text) }
	w := wrap(t, o.net(), c)
	got := step(t, w, o.batch, 3)
	x := w.Explain()
	if x.MicroBatches != 2 || len(notices) != 1 || !slices.Equal(x.Notices, notices) || !strings.Contains(notices[0], "2 micro-batches") {
		t.Errorf("%d micro-batches, notices %q", x.MicroBatches, notices)
	}
	for i := range got {
		if d := got[i]/losses[i] - 1; d > 1e-5 || d < -1e-5 {
			t.Errorf("the losses are %v in two parts and %v at once", got, losses)
		}
	}
}

// What is reported of memory is what is: predicted, reserved and counted by the device are
// one number, modules add up to the model, and swaps are those of the executor.
func TestMemoryStatsAreReal(t *testing.T) {
	for _, o := range ownModels() {
		for _, strategy := range []string{"standard", "checkpointing", "optimizer-offload", "cpu-offload"} {
			c := described(t)
			c.Strategy = strategy
			w := wrap(t, o.net(), c)
			const n = 3
			step(t, w, o.batch, n)
			s := w.MemoryStats()
			if d := s.Devices[0]; d.Predicted == 0 || d.Predicted != d.Reserved || d.Predicted != d.Allocated || d.Predicted != d.Peak {
				t.Errorf("%s, %s: %+v", o.name, strategy, d)
			}
			if s.Host.Predicted != s.Host.Reserved || s.Strategy != w.Strategy() {
				t.Errorf("%s, %s: %+v", o.name, strategy, s)
			}
			checkModules(t, s, stateDict(t, w), strategy)
			checkSwaps(t, s, strategy, n)
			for _, word := range []string{w.Strategy(), s.Modules[0].Name, "swaps"} {
				if !strings.Contains(s.String(), word) {
					t.Errorf("%s, %s: no %q in %s", o.name, strategy, word, s)
				}
			}
		}
	}
}

func checkModules(t *testing.T, s spillway.MemoryStats, d spillway.StateDict, strategy string) {
	t.Helper()
	var bytes, weights, state, device int64
	for _, p := range d {
		bytes += 4 * p.Shape.Elements()
	}
	padding := 256 * int64(len(d))
	for _, m := range s.Modules {
		home := m.Weights.Device
		if strategy == "cpu-offload" {
			home = m.Weights.Host
		}
		weights += home
		state += m.OptimizerState.Host
		device += m.OptimizerState.Device
		if m.Gradients.Device < m.Weights.Device && m.OptimizerState.Device+m.OptimizerState.Host > 0 && m.Weights.Host == 0 {
			t.Errorf("%s: module %s has gradients of %d bytes for weights of %d", strategy, m.Name, m.Gradients.Device, m.Weights.Device)
		}
	}
	if weights < bytes || weights > bytes+padding {
		t.Errorf("%s: the weights of the modules take %d bytes, the model's %d", strategy, weights, bytes)
	}
	if offloaded := strings.Contains(strategy, "offload"); offloaded && (state < 2*bytes || state > 2*(bytes+padding)) || !offloaded && (state != 0 || device < 2*bytes) {
		t.Errorf("%s: %d bytes of state on the host and %d on the device, the weights take %d", strategy, state, device, bytes)
	}
	if k := kept(s); k == 0 {
		t.Errorf("%s: no activations", strategy)
	}
}

func checkSwaps(t *testing.T, s spillway.MemoryStats, strategy string, iterations int64) {
	t.Helper()
	var in, out executor.Transfers
	for _, r := range s.Routes {
		if r.Class == plan.BatchData && r.Moves != iterations {
			t.Errorf("%s: %d batches went to the device in %d iterations", strategy, r.Moves, iterations)
		}
		if r.Class == plan.BatchData || r.Class == plan.ResultData {
			continue
		}
		if r.To == plan.OnDevice {
			in.Moves, in.Bytes = in.Moves+r.Moves, in.Bytes+r.Bytes
		} else {
			out.Moves, out.Bytes = out.Moves+r.Moves, out.Bytes+r.Bytes
		}
	}
	if in != s.SwapsIn || out != s.SwapsOut {
		t.Errorf("%s: swaps %v and %v, routes %v and %v", strategy, s.SwapsIn, s.SwapsOut, in, out)
	}
	if moves := strings.Contains(strategy, "offload"); moves != (in.Bytes > 0) || moves != (out.Bytes > 0) || moves && in.Moves%iterations != 0 {
		t.Errorf("%s: %v in, %v out in %d iterations", strategy, in, out, iterations)
	}
}

// The explanation has the reason, the forecast and what was rejected, as data and text.
func TestExplain(t *testing.T) {
	o := ownModels()[2]
	peak, _, _, _ := standard(t, o, 1)
	c := described(t)
	c.MaxMemory, c.MicroBatches = fmt.Sprint(peak*2/3), 1
	w := wrap(t, o.net(), c)
	step(t, w, o.batch, 1)
	x := w.Explain()
	if x.Strategy != w.Strategy() || x.Task != spillway.Train || x.StepSeconds <= 0 || x.Peak[plan.OnDevice] > peak*2/3 || x.BatchSize != 4 || x.Seq != 10 {
		t.Errorf("%+v", x)
	}
	i := slices.IndexFunc(x.Rejected, func(o plan.Alternative) bool { return o.Strategy == "standard" })
	if i < 0 || x.Rejected[i].Fits || x.Rejected[i].PeakBytes[plan.OnDevice] != peak {
		t.Errorf("standard is not among the rejected, with the %d bytes it needs: %+v", peak, x.Rejected)
	}
	for _, word := range []string{x.Strategy, "everything needs", "not standard: needs " + units.Bytes(peak).String(), "bound by"} {
		if !strings.Contains(x.String(), word) {
			t.Errorf("no %q in %s", word, x)
		}
	}
}

// A forecast is explained with three digits and the unit that suits it.
func TestExplainedTimes(t *testing.T) {
	for seconds, want := range map[float64]string{1.551e-05: "15.5 µs each", 0.0203456: "20.3 ms each", 2.5: "2.50 s each", 62.345: "62.3 s each"} {
		if got := (spillway.Explanation{Strategy: "standard", BatchSize: 1, MicroBatches: 1, StepSeconds: seconds}).String(); !strings.Contains(got, want) {
			t.Errorf("%g s: %s, want %q in it", seconds, got, want)
		}
	}
}
