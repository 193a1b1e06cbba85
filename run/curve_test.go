package run_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"spillway"
	"spillway/device"
	"spillway/device/cuda"
	"spillway/dtype"
	"spillway/machine"
	"spillway/plan"
	"spillway/planner/strategy"
	"spillway/train"
)

// curveFolder is a model with a curve.json of tools/reference/curve.py.
var curveFolder = flag.String("curve", filepath.Join("..", "testdata", "reference", "llama"), "follow PyTorch's losses of the model in this folder")

// curve is a training run in PyTorch: losses by precision and implementation of attention.
type curve struct {
	Iterations int
	Rows       int64
	Tokens     int64
	Batches    int
	Rate       float64
	F32        map[string][]float64
	BF16       map[string][]float64
}

func openCurve(t *testing.T) (c curve) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(*curveFolder, "curve.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &c); err != nil {
		t.Fatal(err)
	}
	if len(c.F32) < 2 || len(c.BF16) < 2 || c.Iterations < 100 {
		t.Fatalf("%s: %d iterations, %d runs in f32 and %d in bf16", *curveFolder, c.Iterations, len(c.F32), len(c.BF16))
	}
	return c
}

// hashed feeds the batches of curve.py, whose ids are a hash of their place.
type hashed struct {
	curve
	vocabulary int64
	number     int
}

func (h *hashed) Next(p train.Parts) (train.Filled, error) {
	width := h.Tokens + 1
	ids := make([]int64, h.Rows*width)
	for i := range ids {
		word := (int64(i) + 1 + int64(h.number%h.Batches)*100003) * 2654435761 % (1 << 32) / 256
		ids[i] = word % h.vocabulary * (word / h.vocabulary % h.vocabulary) / h.vocabulary
	}
	h.number++
	var tokens, targets, positions []int32
	for i, id := range ids {
		at := int64(i) % width
		if at < h.Tokens {
			tokens, positions = append(tokens, int32(id)), append(positions, int32(at))
		}
		if at > 0 {
			targets = append(targets, int32(id))
		}
	}
	parts := repeated{counted: h.Rows * h.Tokens, parts: map[string][]byte{
		"tokens": intBytes(tokens), "targets": intBytes(targets), "positions": intBytes(positions)}}
	return parts.Next(p)
}

func (h *hashed) Position() (json.RawMessage, error) { return json.Marshal(h.number) }
func (h *hashed) Seek(at json.RawMessage) error      { return json.Unmarshal(at, &h.number) }

// losses trains the curve's iterations on a device, with AdamW unless the options name
// another optimizer.
func (c curve) losses(t *testing.T, dev device.Device, o spillway.Options) []float64 {
	t.Helper()
	m := open(t, *curveFolder)
	if o.Optimizer.Name == "" {
		o.Optimizer = optimizer(t, fmt.Sprintf("adamw:lr=%g", c.Rate))
	}
	o.Task, o.MicroBatchSize, o.Seq, o.On = spillway.Train, c.Rows, c.Tokens, []device.Device{dev}
	job, err := m.Plan(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := job.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := job.Close(); err != nil {
			t.Error(err)
		}
	}()
	run, err := train.New(job, &hashed{curve: c, vocabulary: m.Info.Vocab}, train.Config{})
	if err != nil {
		t.Fatal(err)
	}
	var list []float64
	for range c.Iterations {
		r, err := run.Step()
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, r.Loss)
	}
	return list
}

// between two runs: how far apart their losses are, on average and at most.
func between(a, b []float64) (mean, most float64) {
	for i := range a {
		off := math.Abs(a[i] - b[i])
		mean, most = mean+off*off, max(most, off)
	}
	return math.Sqrt(mean / float64(len(a))), most
}

// spread is how far apart the runs of PyTorch are from each other, by the farthest two.
func spread(runs map[string][]float64) (mean, most float64) {
	for _, a := range runs {
		for _, b := range runs {
			m, w := between(a, b)
			mean, most = max(mean, m), max(most, w)
		}
	}
	return mean, most
}

// nearest is how far our losses are from the nearest of PyTorch's runs.
func nearest(ours []float64, runs map[string][]float64) (mean, most float64) {
	mean = math.Inf(1)
	for _, theirs := range runs {
		if m, w := between(ours, theirs); m < mean {
			mean, most = m, w
		}
	}
	return mean, most
}

// longRuns is how far losses of two hundred iterations in f32 may be from PyTorch's.
const longRuns = 1e-3

// Two hundred iterations in f32 have PyTorch's losses.
func TestCurveFollowsPyTorch(t *testing.T) {
	c := openCurve(t)
	dev := openDevice(t)
	c.inF32(t, c.losses(t, dev, spillway.Options{Machine: parse(t, "cpu:1GiB,host:4GiB")}))
}

func (c curve) inF32(t *testing.T, ours []float64) {
	t.Helper()
	mean, most := nearest(ours, c.F32)
	_, apart := spread(c.F32)
	t.Logf("f32: loss %.4f to %.4f, off by %.2g on average and %.2g at most; PyTorch from itself %.2g", ours[0], ours[len(ours)-1], mean, most, apart)
	if !(most <= longRuns) {
		t.Errorf("losses are off by up to %v, %v is allowed", most, longRuns)
	}
}

// openGPU opens the first GPU, or skips.
func openGPU(t *testing.T) (*cuda.Device, machine.Machine) {
	t.Helper()
	dev, err := cuda.Open(cuda.Options{Cache: filepath.Join(os.TempDir(), "spillway-kernels")})
	if err != nil {
		t.Skipf("no GPU to try: %v", err)
	}
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	return dev, parse(t, "gpu:4GiB,host:4GiB,disk:4GiB@1GB/s")
}

// On a GPU the same holds, and in bf16 our losses are no farther from PyTorch's than
// PyTorch's are from each other when it computes attention in another way.
func TestCurveOnTheGPU(t *testing.T) {
	c := openCurve(t)
	dev, m := openGPU(t)
	c.inF32(t, c.losses(t, dev, spillway.Options{Machine: m}))
	ours := c.losses(t, dev, spillway.Options{Machine: m, Precision: dtype.BF16})
	mean, most := nearest(ours, c.BF16)
	apart, farthest := spread(c.BF16)
	t.Logf("bf16: loss %.4f to %.4f, off by %.2g on average and %.2g at most; PyTorch from itself %.2g and %.2g", ours[0], ours[len(ours)-1], mean, most, apart, farthest)
	if !(mean <= apart) {
		t.Errorf("losses are off by %v on average, PyTorch's by %v from each other", mean, apart)
	}
}

// agree trains on the GPU by several plans and compares their losses.
func (c curve) agree(t *testing.T, what string, like spillway.Options, others map[string]strategy.Constraints) {
	t.Helper()
	c.Iterations = 20
	dev, m := openGPU(t)
	like.Machine = m
	want := c.losses(t, dev, like)
	for name, constraints := range others {
		o := like
		o.Constraints, o.Disk = constraints, t.TempDir()
		for i, loss := range c.losses(t, dev, o) {
			if loss != want[i] {
				t.Errorf("%s, %s: loss %d is %v, resident %v", what, name, i, loss, want[i])
				break
			}
		}
	}
}

// Wherever weights, state and activations are stored, and whoever updates, the GPU or the
// CPU, the result is the same bits.
func TestPlacesAgreeOnTheGPU(t *testing.T) {
	c := openCurve(t)
	for _, precision := range []dtype.Type{dtype.F32, dtype.BF16} {
		c.agree(t, precision.String(), spillway.Options{Precision: precision}, map[string]strategy.Constraints{
			"recomputed":              {Activations: strategy.Recomputed},
			"streamed from host":      {Weights: plan.OnHost, State: plan.OnHost, Updates: strategy.ByDevice},
			"streamed from disk":      {Weights: plan.OnDisk, State: plan.OnDisk},
			"updated by the host":     {Updates: strategy.ByCPU},
			"streamed and so updated": {Weights: plan.OnHost, State: plan.OnHost, Updates: strategy.ByCPU},
			"updated by both":         {Updates: strategy.ByBoth},
		})
	}
}

// So it is with every optimizer and with what it keeps quantized, next to masters and
// without.
func TestUpdatersAgreeOnTheGPU(t *testing.T) {
	c := openCurve(t)
	for _, name := range []string{"adamw_bf16:lr=1e-3", "adamw_8bit:lr=1e-3", "adam:lr=1e-3", "lion:lr=1e-4", "lion_8bit:lr=1e-4", "sgd:lr=1e-2,momentum=0.9", "sgd:lr=1e-2"} {
		for _, pure := range []bool{false, true} {
			o := spillway.Options{Precision: dtype.BF16, Pure: pure, Optimizer: optimizer(t, name)}
			c.agree(t, fmt.Sprintf("%s, pure %t", name, pure), o, map[string]strategy.Constraints{"updated by the host": {Updates: strategy.ByCPU}, "updated by both": {Updates: strategy.ByBoth}})
		}
	}
}
