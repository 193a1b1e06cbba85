package bench

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"spillway"
	"spillway/arch/vision"
	"spillway/dtype"
	"spillway/machine"
	"spillway/nn"
	"spillway/optim"
	"spillway/rig"
	"spillway/run"
)

// seen is something that was measured on an H200, with what a plan for one that is only described says.
type seen struct {
	name               string
	measured, forecast float64 // seconds
}

func (s seen) off() float64 { return 1 - s.forecast/s.measured }

// A described H200 is forecast to take what one took, without a single measurement of it at hand: by its maker's figures, the
// shares of them that kernels reach, and their shortest times. GPT-2, the worst, was measured with slower kernels of dropout.
func TestDescribedGPUIsForecastAsMeasured(t *testing.T) {
	m, err := machine.Parse("h200,host:125GiB")
	if err != nil {
		t.Fatal(err)
	}
	list := slices.Concat(seenRows(t, m), seenVision(t, m), seenSteps(t, m))
	var off []float64
	for _, s := range list {
		t.Logf("%-72s took %8.2f ms, forecast %8.2f ms, off by %4.0f%%", s.name, 1e3*s.measured, 1e3*s.forecast, 100*s.off())
		off = append(off, math.Abs(s.off()))
	}
	slices.Sort(off)
	n := len(off)
	t.Logf("%d: off by %.1f%% at the median, %.1f%% in nine of ten, %.1f%% at worst", n, 100*off[n/2], 100*off[n*9/10], 100*off[n-1])
	if n < 41 || off[n/2] > 0.06 || off[n*9/10] > 0.15 || off[n-1] > 0.4 {
		t.Errorf("%d forecasts are off by %v at the median, %v in nine of ten, %v at worst", n, off[n/2], off[n*9/10], off[n-1])
	}
}

// seenRows are rows of bench gpu.
func seenRows(t *testing.T, m machine.Machine) (list []seen) {
	text, err := os.ReadFile(filepath.Join("testdata", "h200.json"))
	if err != nil {
		t.Fatal(err)
	}
	var report GPUReport
	if err := json.Unmarshal(text, &report); err != nil {
		t.Fatal(err)
	}
	rows := map[string]*GPURow{}
	for _, row := range gpuRows() {
		rows[row.Name] = row
	}
	for _, measured := range report.Results {
		list = append(list, seen{measured.Name, measured.Seconds, forecastOf(t, rows[measured.Name], m)})
	}
	return list
}

// forecastOf is how many seconds a machine is forecast to take for a row.
func forecastOf(t *testing.T, row *GPURow, m machine.Machine) float64 {
	t.Helper()
	made, err := openBench(row.model)
	if err != nil {
		t.Fatal(err)
	}
	defer made.Close()
	job, err := made.Plan(row.request(m, &rig.Rig{}))
	if err != nil {
		t.Fatal(err)
	}
	return job.Plan.Forecast.StepSeconds
}

// seenVision are training iterations of 128 images, each of which was copied when its iteration began: docs/performance.md.
func seenVision(t *testing.T, m machine.Machine) (list []seen) {
	for _, net := range []struct {
		name     string
		make     func() nn.Model
		measured float64
	}{
		{"resnet50", func() nn.Model { return vision.NewResNet50() }, 22.6e-3},
		{"vit_b_16", func() nn.Model { return vision.NewViTB16() }, 36.0e-3},
	} {
		o := spillway.Options{Task: spillway.Train, Precision: dtype.BF16, MicroBatchSize: 128, Seq: 1, MicroBatches: 1, Machine: m}
		o.Bounds.SingleBatch = true
		var err error
		if o.Optimizer, err = optim.Parse("sgd:lr=0.01,momentum=0.9,weight_decay=0"); err != nil {
			t.Fatal(err)
		}
		job, err := spillway.Define(net.name, func() (nn.Model, error) { return net.make(), nil }).Plan(o)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, seen{net.name + ": training of 128 images", net.measured, job.Plan.Forecast.StepSeconds})
	}
	return list
}

// seenSteps are steps that add a token to texts of 1,024, by their kernels alone, and prompts.
func seenSteps(t *testing.T, m machine.Machine) (list []seen) {
	made, err := spillway.Open("llama-3-8b")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []struct {
		streams int64
		rate    float64
	}{{1, 244}, {16, 3135}, {128, 13549}} {
		job, err := made.Plan(spillway.Options{Task: spillway.Generate, Precision: dtype.BF16, Machine: m, Generation: run.Generation{Context: 1024, Streams: s.streams}})
		if err != nil {
			t.Fatal(err)
		}
		f, err := job.ForecastStep(s.streams, 1024)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, seen{fmt.Sprintf("llama-3-8b: decode, %d × 1024 tokens", s.streams), float64(s.streams) / s.rate, f.Seconds})
	}
	job, err := made.Plan(spillway.Options{Task: spillway.Generate, Precision: dtype.BF16, Machine: m, Generation: run.Generation{Context: 4096, Streams: 4}})
	if err != nil {
		t.Fatal(err)
	}
	f, err := job.ForecastPrompts(4, 4096)
	if err != nil {
		t.Fatal(err)
	}
	return append(list, seen{"llama-3-8b: prompts of 4 × 4096", 4 * 4096 / 40000.0, f.Seconds})
}
