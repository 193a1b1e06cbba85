package spillway_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"spillway"
	_ "spillway/device/cuda" // so that GPUs are looked for
	"spillway/nn"
)

// several is the CPU as so many devices of a thread each.
func several(t testing.TB, n int) spillway.Config {
	return spillway.Config{Options: spillway.Options{Machine: parse(t, fmt.Sprintf("%dxgpu:2GiB,host:8GiB", n))}, Devices: slices.Repeat([]string{"cpu:threads=1"}, n), Seed: 3}
}

// near says whether losses agree but for the order of sums.
func near(a, b []float64) bool {
	return slices.EqualFunc(a, b, func(x, y float64) bool { return math.Abs(x-y) <= 1e-5*math.Abs(y) })
}

// Every way several devices can share the work trains every model alike, with and
// without offload, and gives the outputs of one device: masks without samples are not
// cut as if they had any.
func TestSeveralDevices(t *testing.T) {
	words := map[string]string{"zero-2": "ZeRO-2", "zero-1": "ZeRO-1", "zero-3": "ZeRO-3", "model-parallel": "model parallel", "pipeline": "pipeline"}
	for _, o := range ownModels() {
		t.Run(o.name, func(t *testing.T) {
			peak, losses, _, out := standard(t, o, 4)
			for strategy, word := range words {
				for _, share := range []float64{1, 0.75} {
					c := several(t, 2)
					c.Strategy, c.MaxMemory = strategy, fmt.Sprint(int64(share*float64(peak)))
					w := wrap(t, o.net(), c)
					got := step(t, w, o.batch, 4)
					if !strings.Contains(w.Strategy(), word) || !near(got, losses) {
						t.Errorf("%s in %v of the memory: %s, losses %v, want %v", strategy, share, w.Strategy(), got, losses)
					}
					for d, m := range w.MemoryStats().Devices {
						if m.Predicted == 0 || m.Predicted != m.Peak || m.Peak > int64(share*float64(peak)) {
							t.Errorf("%s: device %d: %+v", strategy, d, m)
						}
					}
					if share < 1 {
						continue
					}
					again := forward(t, w, o.inputs())
					if d := apart(again.Floats, out.Floats); d > 1e-4 || !again.Shape.Equal(out.Shape) {
						t.Errorf("%s: outputs are off by %v", strategy, d)
					}
				}
			}
		})
	}
}

// A model parallel model is really on both devices, whatever its class.
func TestModelParallelSplitsTheWeights(t *testing.T) {
	net := nn.NewSequential(nn.NewLinear(64, 64), nn.ReLU, nn.NewLinear(64, 64), nn.ReLU, nn.NewLinear(64, 64), nn.ReLU, nn.NewLinear(64, 64))
	net.Input, net.Loss = []int64{64}, nn.MeanSquare
	c := several(t, 2)
	c.Strategy = "model-parallel"
	w := wrap(t, net, c)
	forward(t, w, spillway.Batch{"input": spillway.Floats(make([]float32, 2*64), 2, 64)})
	var weights int64
	for _, p := range stateDict(t, w) {
		weights += 4 * p.Shape.Elements()
	}
	for d, m := range w.MemoryStats().Devices {
		if m.Peak < weights*2/5 || m.Peak > weights*3/4 {
			t.Errorf("device %d has %d bytes, the weights take %d", d, m.Peak, weights)
		}
	}
}

// Preferring data parallel devices takes them where that is possible; the threshold
// rules them out for models that are too large; and both are said.
func TestPreferringDataParallel(t *testing.T) {
	o := ownModels()[2]
	run := func(prefer bool, threshold float64, devices int, memory string) (string, []string) {
		c := several(t, devices)
		c.PreferDataParallel, c.DataParallelThreshold, c.MaxMemory = prefer, threshold, memory
		w := wrap(t, o.net(), c)
		step(t, w, o.batch, 1)
		return w.Strategy(), w.Explain().Notices
	}
	if s, notices := run(true, 0, 2, ""); !strings.Contains(s, "ZeRO-2") || len(notices) > 0 {
		t.Errorf("preferred: %s, %q", s, notices)
	}
	if s, _ := run(false, 0, 2, ""); strings.Contains(s, "ZeRO-2") {
		t.Errorf("batches this small do not pay for several devices, and the plan is %s", s)
	}
	if s, notices := run(true, 0.25, 2, "60KiB"); strings.Contains(s, "ZeRO-2") || len(notices) == 0 || !strings.Contains(notices[0], "ruled out") {
		t.Errorf("weights of 17 KiB on devices of 60 KiB, to be a quarter at most: %s, %q", s, notices)
	}
	if s, notices := run(true, 0, 1, ""); strings.Contains(s, "parallel") || len(notices) == 0 || !strings.Contains(notices[0], "there is one") {
		t.Errorf("one device: %s, %q", s, notices)
	}
	c := several(t, 2)
	c.Strategy, c.DataParallelThreshold, c.MaxMemory = "zero-2", 0.1, "100KiB"
	if _, err := wrap(t, o.net(), c).Step(o.batch); err == nil || !strings.Contains(err.Error(), "zero-3") {
		t.Errorf("data parallel above its threshold: %v", err)
	}
}

// Large batches of inference go to all devices by themselves.
func TestDevicesAreUsedWhereThatPays(t *testing.T) {
	net := nn.NewSequential(nn.NewLinear(512, 512), nn.ReLU, nn.NewLinear(512, 512))
	net.Input, net.Loss = []int64{512}, nn.MeanSquare
	w := wrap(t, net, several(t, 2))
	forward(t, w, spillway.Batch{"input": spillway.Floats(make([]float32, 4096*512), 4096, 512)})
	if !strings.Contains(w.Strategy(), "2 devices") {
		t.Errorf("%s", w.Explain())
	}
}

// Without a word on devices a GPU is taken where there is one; where there is none
// the CPU computes, and that is said. Either gives the same training.
func TestGPUsAreLookedFor(t *testing.T) {
	o := ownModels()[2]
	_, want, _, _ := standard(t, o, 3)
	w := wrap(t, o.net(), spillway.Config{Options: spillway.Options{MicroBatches: 1}, Seed: 3})
	got := step(t, w, o.batch, 3)
	if !near(got, want) {
		t.Errorf("losses %v, on the CPU %v", got, want)
	}
	name, notices := w.MemoryStats().Devices[0].Name, w.Explain().Notices
	if said := len(notices) == 1 && strings.Contains(notices[0], "device: CPU"); said != (name == "cpu") {
		t.Errorf("on %s, notices %q", name, notices)
	}
}

// This computer can be several devices, too.
func TestSeveralDevicesOfThisComputer(t *testing.T) {
	o := ownModels()[2]
	w := wrap(t, o.net(), spillway.Config{Options: spillway.Options{Strategy: "zero-3"}, Devices: []string{"cpu:threads=1", "cpu:threads=1"}})
	losses := step(t, w, o.batch, 10)
	if losses[9] >= losses[0] || !strings.Contains(w.Strategy(), "2 devices") {
		t.Errorf("%s: %v", w.Strategy(), losses)
	}
}
