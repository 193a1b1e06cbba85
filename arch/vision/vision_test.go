package vision_test

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"spillway"
	"spillway/arch/vision"
	_ "spillway/device/cpu"
	_ "spillway/device/cuda"
	"spillway/dtype"
	"spillway/graph"
	"spillway/nn"
	"spillway/optim"
	"spillway/spec"
)

// Numbers of weights as published, running statistics not counted.
func TestPublishedSizes(t *testing.T) {
	for name, c := range map[string]struct {
		net  nn.Model
		want int64
	}{"resnet50": {vision.NewResNet50(), 25557032}, "vit_b_16": {vision.NewViTB16(), 86567656}} {
		m, err := spec.Trace(name, "own", c.net, graph.Config{MicroBatchSize: 2, Seq: 1, DType: dtype.F32, Task: graph.Train})
		if err != nil {
			t.Fatal(err)
		}
		var n int64
		for _, p := range m.Params {
			if p.Momentum == 0 {
				n += p.Type.Shape.Elements()
			}
		}
		if n != c.want {
			t.Errorf("%s has %d weights, want %d", name, n, c.want)
		}
	}
}

// A shape that does not fit is refused while a model is traced, with the block, both numbers and the line.
func TestWrongShapesAreRefused(t *testing.T) {
	wide := vision.NewResNet(32, 10, 1, 1, 1, 1)
	wide.Layer2[0].Conv2 = nn.NewConv2d(96, 128, 3).Strided(2, 1).WithoutBias()
	small := vision.NewViT(16, 32, 8, 1, 2, 5)
	for want, net := range map[string]nn.Model{"layer2.0: resnet.go:|has 128 channels|is for 96": wide, "patch_embed: |has 16 places|takes 32": small} {
		_, err := spec.Trace("wrong", "own", net, graph.Config{MicroBatchSize: 2, Seq: 1, DType: dtype.F32, Task: graph.Train})
		for _, part := range strings.Split(want, "|") {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("error %v, want %q in it", err, part)
			}
		}
	}
}

var (
	model     = flag.String("vision.model", "resnet50", "the network to measure")
	device    = flag.String("vision.device", "cpu", "where")
	typed     = flag.String("vision.dtype", "f32", "what it computes in")
	size      = flag.Int64("vision.batch", 8, "images of a batch")
	profile   = flag.Int("vision.profile", 0, "passes between profiles")
	optimizer = flag.String("vision.optimizer", "sgd:lr=0.01,momentum=0.9,weight_decay=0", "what updates the weights")
	batches   = flag.String("vision.batches", "sequence", "how batches are given: one at a time, as \"single\", or as a \"sequence\" of which the next comes during a step")
	limit     = flag.String("vision.limit", "", "memory of the device")
)

// warmUp is how many steps are not timed.
const warmUp = 3

// BenchmarkTraining is an iteration of SGD with momentum; next to PyTorch see tools/reference/vision.py.
func BenchmarkTraining(b *testing.B) {
	var net nn.Model
	switch *model {
	case "resnet50":
		net = vision.NewResNet50()
	case "vit":
		net = vision.NewViTB16()
	default:
		b.Fatalf("-vision.model %q: known are resnet50 and vit", *model)
	}
	c := spillway.Config{Devices: []string{*device}}
	c.MaxMemory, c.MicroBatches = *limit, 1
	c.ProfileInterval = *profile
	c.Precision = map[string]dtype.Type{"f32": dtype.F32, "bf16": dtype.BF16, "f16": dtype.F16}[*typed]
	var err error
	if c.Optimizer, err = optim.Parse(*optimizer); err != nil {
		b.Fatal(err)
	}
	w, err := spillway.Wrap(net, c)
	if err != nil {
		b.Fatal(err)
	}
	defer w.Close()
	floats, ints := make([]float32, *size*3*224*224), make([]int32, *size)
	for i := range floats {
		floats[i] = float32(i*7919%1000)/500 - 1
	}
	batch := spillway.Batch{"input": spillway.Floats(floats, *size, 3, 224, 224), "targets": spillway.Ints(ints, *size)}
	list := func(yield func(spillway.Batch, error) bool) {
		for range warmUp + b.N {
			if !yield(batch, nil) {
				return
			}
		}
	}
	steps := w.Steps(list)
	if *batches == "single" {
		steps = func(yield func(float64, error) bool) {
			for given := range list {
				if !yield(w.Step(given)) {
					return
				}
			}
		}
	}
	var start time.Time
	done := 0
	for _, err := range steps {
		if err != nil {
			b.Fatal(err)
		}
		if done++; done == warmUp {
			start = time.Now()
			b.ResetTimer()
		}
	}
	took := time.Since(start) / time.Duration(b.N)
	for _, e := range w.Profile().Events {
		fmt.Printf("%12.3f %10.3f ms %+v\n", float64(e.Start)/1e6, float64(e.End-e.Start)/1e6, e)
	}
	stats := w.MemoryStats()
	fmt.Printf("%s %s %s batch %d limit %q: %v an iteration, %.1f images/s, peak %.2f GiB, %s, %s batches, %v\n", *model, *device, *typed, *size, *limit,
		took.Round(10*time.Microsecond), float64(*size)/took.Seconds(), float64(stats.Devices[0].Peak)/(1<<30), w.Strategy(), *batches, w.Explain().Input)
}
