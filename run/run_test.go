package run_test

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spillway"
	"spillway/checkpoint"
	"spillway/device"
	"spillway/device/cpu"
	"spillway/device/devicetest"
	"spillway/dtype"
	"spillway/executor"
	"spillway/internal/reference"
	"spillway/lora"
	"spillway/nn"
	"spillway/optim"
	"spillway/plan"
	"spillway/planner"
	"spillway/train"
)

func TestOpenRefuses(t *testing.T) {
	empty := t.TempDir()
	odd := configFile(t, `{"model_type":"mamba"}`)
	for name, says := range map[string]string{
		"no-such-model": `no folder and no preset "no-such-model"`,
		empty:           "not a model folder",
		odd:             `"mamba" is not known`,
	} {
		if _, err := spillway.Open(name); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", name, err, says)
		}
	}
}

// A folder that lacks its weights can be planned for, but does not start.
func TestFoldersNeedWeights(t *testing.T) {
	dev := openDevice(t)
	o := spillway.Options{Task: spillway.Infer, Seq: 8, Machine: parse(t, "cpu:1GiB,host:4GiB"), On: []device.Device{dev}}
	config := configFile(t, tinyLlama(true, 0))
	job, err := open(t, filepath.Dir(config)).Plan(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := job.Start(); err == nil || !strings.Contains(err.Error(), "random weights") {
		t.Errorf("%v", err)
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(config), "model.safetensors"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := spillway.Open(filepath.Dir(config)); err == nil {
		t.Error("a damaged file was accepted")
	}
}

func TestPlansForWhatIsNotHere(t *testing.T) {
	job, err := open(t, "llama-3-8b").Plan(spillway.Options{Task: spillway.LoRA, Seq: 512, Precision: dtype.BF16, Machine: parse(t, "gpu:24GiB@25GB/s,host:64GiB")})
	if err != nil {
		t.Fatal(err)
	}
	if job.Spec.Trainable() == 0 || job.Spec.Trainable()*100 > job.Spec.Count() {
		t.Errorf("%d of %d weights are trained", job.Spec.Trainable(), job.Spec.Count())
	}
	if err := job.Start(); err == nil || !strings.Contains(err.Error(), "0 are here") {
		t.Errorf("started without a device: %v", err)
	}
}

func TestImpossiblePlansSayWhatWouldFit(t *testing.T) {
	m := open(t, configFile(t, tinyLlama(false, 0)))
	o := spillway.Options{Task: spillway.Train, MicroBatchSize: 8, Seq: 64, Machine: parse(t, "cpu:1GiB,host:4GiB"), Budget: 100_000}
	_, err := m.Plan(o)
	var fit *planner.FitError
	if !errors.As(err, &fit) || len(fit.Options) == 0 {
		t.Fatalf("%v, want options", err)
	}
	for _, choice := range fit.Options {
		o.MicroBatchSize, o.Seq, o.MicroBatches, o.Budget = choice.MicroBatchSize, choice.Seq, choice.MicroBatches, choice.Device
		if o.Optimizer = (optim.Config{}); choice.States8Bit {
			o.Optimizer, _ = optim.Parse("adamw_8bit")
		}
		if _, err := m.Plan(o); err != nil {
			t.Errorf("%s does not fit: %v", choice.Change, err)
		}
	}
}

func TestOwnModelsTrain(t *testing.T) {
	build := func() (nn.Model, error) {
		return &nn.Sequential{Input: []int64{2}, Layers: []nn.Layer{nn.NewLinear(2, 16), nn.Tanh, nn.NewLinear(16, 1)}, Loss: nn.MeanSquare}, nil
	}
	// The exclusive or of two numbers.
	feed := &repeated{counted: 4, parts: map[string][]byte{
		"input": floatBytes([]float32{0, 0, 0, 1, 1, 0, 1, 1}), "target": floatBytes([]float32{0, 1, 1, 0})}}
	dev := openDevice(t)
	job, err := spillway.Define("xor", build).Plan(spillway.Options{Task: spillway.Train, MicroBatchSize: 4, Seq: 1, Machine: parse(t, "cpu:1GiB,host:4GiB"), On: []device.Device{dev}})
	if err != nil {
		t.Fatal(err)
	}
	job.Options.Optimizer.LR = 0.03
	r, err := train.Run(context.Background(), job, feed, train.Config{Iterations: 300, Save: &train.Save{Dir: checkpoint.Dir{Path: t.TempDir()}}})
	if err != nil || r.Loss > 1e-3 || r.Checkpoint == "" {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestAdaptersTrainWithAFrozenModel(t *testing.T) {
	s := decoder(t, "llama")
	o := s.options(spillway.LoRA)
	o.Adapters = lora.Options{Targets: []string{"q_proj", "down_proj"}, Rank: 4, Alpha: 8}
	job, e := start(t, s.model, o)
	job.Options.Optimizer.LR = 0.02
	var losses []float64
	trainer, err := train.New(job, s.feed, train.Config{Iterations: 20, Report: func(r train.Report) { losses = append(losses, r.Loss) }})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := trainer.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	if math.Abs(losses[0]-s.Loss) > reference.OneRun*s.Loss || losses[19] > 0.8*losses[0] {
		t.Errorf("the loss went from %v to %v; without adapters it is %v", losses[0], losses[19], s.Loss)
	}
	sameBase(t, e, s)
}

// sameBase checks that frozen weights are as they were.
func sameBase(t *testing.T, e *executor.Executor, s subject) {
	t.Helper()
	adapters := 0
	for _, w := range e.Weights() {
		from, ok := s.model.Folder.Tensor(w.Param.Name)
		if !ok {
			adapters++
			continue
		}
		want := make([]float32, from.Shape.Elements())
		if err := from.ReadF32(want, 0); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(read(t, e, w), want) {
			t.Errorf("%s was changed", w.Param.Name)
		}
	}
	if adapters != 8 { // two pairs in each of two layers
		t.Errorf("%d adapters, want 8", adapters)
	}
}

// In bf16 the weights computed with are the rounded masters.
func TestMastersKeepFullPrecision(t *testing.T) {
	s := decoder(t, "qwen2")
	o := s.options(spillway.Train)
	dev := devicetest.NewPlain(0)
	o.Precision, o.Machine, o.On = dtype.BF16, parse(t, "cpu:1GiB,host:4GiB"), []device.Device{dev}
	job, err := s.model.Plan(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := job.Start(); err != nil {
		t.Fatal(err)
	}
	defer job.Close()
	e := job.Executor()
	run, err := train.New(job, s.feed, train.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		r, err := run.Step()
		if err != nil {
			t.Fatal(err)
		}
		if want := s.AdamW.Losses[i]; math.Abs(r.Loss-want) > 0.01*want {
			t.Errorf("iteration %d: loss %v, in f32 %v", i+1, r.Loss, want)
		}
	}
	rounded := map[string][]byte{}
	for _, w := range e.Weights() {
		if err := e.Read(w, func(_ int64, chunk []byte) error { rounded[w.Param.Name] = slices.Clone(chunk); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	finer := 0
	for _, m := range e.States() {
		if m.State != executor.Master {
			continue
		}
		for i, f := range read(t, e, m) {
			got := binary.LittleEndian.Uint16(rounded[m.Param.Name][2*i:])
			if got != dtype.ToBF16(f) {
				t.Fatalf("element %d of %s is %v, its master %v", i, m.Param.Name, dtype.FromBF16(got), f)
			}
			if dtype.FromBF16(got) != f {
				finer++
			}
		}
	}
	if finer == 0 {
		t.Error("no master has more digits than its weight")
	}
}

// A training run on a device of exactly the predicted size runs; a byte less, and it
// does not start.
func TestPredictedMemoryIsThePeak(t *testing.T) {
	for name, choose := range strategies {
		m := open(t, configFile(t, tinyLlama(true, 0)))
		o := spillway.Options{Task: spillway.Train, MicroBatchSize: 2, Seq: 12, Packed: true, Machine: parse(t, "cpu:1GiB,host:4GiB"), Choose: choose}
		probe := cpu.Open(cpu.Options{})
		o.On = []device.Device{probe}
		job, err := m.Plan(o)
		if err != nil {
			t.Fatal(err)
		}
		if err := probe.Close(); err != nil {
			t.Fatal(err)
		}
		need := job.Plan.Peak()[plan.OnDevice]
		for _, limit := range []int64{need, need - 1} {
			dev := cpu.Open(cpu.Options{Limit: limit})
			job.Options.On = []device.Device{dev}
			_, err := train.Run(context.Background(), job, packedFeed(t, 12), train.Config{Iterations: 2})
			var full *device.OutOfMemoryError
			if (limit == need) != (err == nil) || err != nil && !errors.As(err, &full) {
				t.Errorf("%s: with %d of %d bytes: %v", name, limit, need, err)
			}
			if _, most := dev.Allocated(); limit == need && most != need {
				t.Errorf("%s: %d bytes predicted, %d taken", name, need, most)
			}
			if err := dev.Close(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}
