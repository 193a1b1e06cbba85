package bench

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"spillway"
	"spillway/device/cpu"
	"spillway/dtype"
	"spillway/machine"
	"spillway/op"
	"spillway/plan"
	"spillway/rig"
	"spillway/units"
)

// The bound is the slowest of arithmetic and the ways of the link, at measured rates; in
// work that lasts, arithmetic at the rate that lasts.
func TestGPURowsAreHeldToBounds(t *testing.T) {
	rates := machine.Device{Link: machine.Link{In: 50e9, Out: 25e9, Bidirectional: 0.8}}
	rates.Compute.BF16, rates.Sustained.BF16 = 100e12, 80e12
	for want, f := range map[string]plan.Forecast{
		"arithmetic":     {Flops: 100e12, BytesIn: 10e9, BytesOut: 10e9, StepSeconds: 1.25},
		"link in":        {Flops: 1e12, BytesIn: 50e9, BytesOut: 5e9},
		"link out":       {Flops: 1e12, BytesIn: 10e9, BytesOut: 25e9},
		"link both ways": {Flops: 1e12, BytesIn: 40e9, BytesOut: 20e9},
	} {
		row := GPURow{Seconds: 2, options: spillway.Options{Precision: dtype.BF16}}
		row.account(&plan.Plan{Forecast: &f}, rates)
		sustained := row.Burst
		if want == "arithmetic" {
			sustained = GPUBound{want, 1.25, 0.625}
		}
		if row.Burst != (GPUBound{want, 1, 0.5}) || row.Sustained != sustained || row.Forecast != f.StepSeconds {
			t.Errorf("%+v is bound by %+v, sustained %+v", f, row.Burst, row.Sustained)
		}
	}
}

// The sustained time is what iterations take after a while, whatever they took at first; the best
// is the shortest of all but the first.
func TestGPURowsAreTimedSustained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var row GPURow
		n := 0
		err := row.time(warmUp(&plan.Forecast{Busy: map[string]float64{"compute": 1}}), func() error {
			took := 100 * time.Millisecond // of a warm GPU
			switch n++; {
			case n == 1:
				took = time.Millisecond
			case n < 5:
				took = 80 * time.Millisecond
			}
			time.Sleep(took)
			return nil
		})
		if err != nil || row.Seconds != 0.1 || row.Best != 0.08 {
			t.Errorf("%d iterations: %v s, at best %v s; %v", n, row.Seconds, row.Best, err)
		}
	})
}

// Baselines on GPUs are run for the rows that were measured, and compared.
func TestGPUBaselinesAreRun(t *testing.T) {
	o := fakePython(t, `case "$1" in
*torch_offload_forward.py) echo '{"version": "a 1", "results": [{"row": 0, "baseline": "accelerate", "seconds": 2}, {"row": 1, "baseline": "accelerate", "seconds": 9}, {"row": -1, "baseline": "other", "error": "it broke"}]}';;
*) exit 1;;
esac
`)
	short := &GPURow{Name: forwardShort, Seconds: 0.5, Forecast: 0.6, Driver: 100, DriverPredicted: 102}
	kept := &GPURow{Name: trainSaved, Seconds: 1, Forecast: 1, Driver: 100, DriverPredicted: 99}
	r := &GPUReport{Results: []*GPURow{short, kept}}
	(&baselines{Options: o}).onGPU(context.Background(), r, func(string) {})
	r.conclude()
	if short.Ratio["accelerate"] != 4 || len(kept.Theirs) != 0 || len(r.Notes) != 2 ||
		!strings.Contains(r.Notes[0], "it broke") || !strings.Contains(r.Notes[1], "torch_train_gpu.py") {
		t.Errorf("%+v, %+v, notes %v", short, kept, r.Notes)
	}
	if math.Abs(r.TimeOff-0.2) > 1e-9 || r.TimeOffMost != 0 || r.MemoryOff[0] != -0.01 || r.MemoryOff[1] != 0.02 {
		t.Errorf("time off by %v, memory by %v", r.TimeOff, r.MemoryOff)
	}
}

// With the rates that were measured on an H200, plans forecast what iterations took there,
// and its driver counted what was predicted. The file is what bench gpu --json wrote: copy
// the one of any run there. In this one the driver was predicted to count two pages less
// than today. Rows with the optimizer step on the CPU are left out, since its rate was
// measured wrongly then. The sustained rate of matmuls, and the rate of attention with
// dropout, were measured later, on another GPU of the kind.
func TestForecastsAreWhatWasMeasured(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "h200.json"))
	if err != nil {
		t.Fatal(err)
	}
	var seen GPUReport
	if err := json.Unmarshal(text, &seen); err != nil {
		t.Fatal(err)
	}
	m, err := machine.Parse(seen.Machine)
	if err != nil {
		t.Fatal(err)
	}
	m.Devices[0] = m.Devices[0].WithMeasured(seen.Rates)
	rows := map[string]*GPURow{}
	for _, row := range gpuRows() {
		rows[row.Name] = row
	}
	var r GPUReport
	for _, measured := range seen.Results {
		row := rows[measured.Name]
		if row == nil {
			t.Errorf("there is no row %s any more", measured.Name)
			continue
		}
		measured.Forecast = forecastOf(t, row, m)
		t.Logf("%-72s took %8.2f ms, forecast %8.2f ms", measured.Name, 1e3*measured.Seconds, 1e3*measured.Forecast)
		r.Results = append(r.Results, measured)
	}
	r.conclude()
	t.Logf("%d rows: time off by %.1f%% at the median, in nine of ten by %.1f%% at most, memory by %.2f%% to %.2f%%", len(r.Results), 100*r.TimeOff, 100*r.TimeOffMost, 100*r.MemoryOff[0], 100*r.MemoryOff[1])
	if len(r.Results) < 30 || !(r.TimeOff <= 0.03) || !(r.TimeOffMost <= 0.1) || r.MemoryOff[0] < -0.001 || r.MemoryOff[1] > 0.02 {
		t.Errorf("%d rows: time is off by %v at the median, in nine of ten by %v at most, memory by %v", len(r.Results), r.TimeOff, r.TimeOffMost, r.MemoryOff)
	}
}

// Rows of language models have sequences packed from documents, as train has them; those with many
// documents say how long, forecast with it, and are filled with them.
func TestGPURowsArePacked(t *testing.T) {
	many := 0
	for _, row := range gpuRows() {
		language := !strings.Contains(row.Name, "encoder") && !strings.Contains(row.Name, "linear layers")
		if row.options.Packed != language {
			t.Errorf("%s: packed is %v", row.Name, row.options.Packed)
		}
		if row.documents == 0 {
			continue
		}
		many++
		seq, mean := row.options.Seq, 0.0
		segments, positions := make([]byte, 4*64*seq), make([]byte, 4*64*seq)
		fillDocuments(segments, false, seq, row.documents)
		fillDocuments(positions, true, seq, row.documents)
		for i := range int(64 * seq) {
			s, at := binary.LittleEndian.Uint32(segments[4*i:]), binary.LittleEndian.Uint32(positions[4*i:])
			begins := int64(i)%seq == 0 || s != binary.LittleEndian.Uint32(segments[4*i-4:])
			if begins != (at == 0) || int64(i)%seq == 0 && s != 0 || !begins && at != binary.LittleEndian.Uint32(positions[4*i-4:])+1 {
				t.Fatalf("%s: position %d is %d of document %d", row.Name, i, at, s)
			}
			if begins {
				mean++
			}
		}
		mean = float64(64*seq) / mean
		// The last document of a sequence is cut; a position is in a long one rather than in a short one.
		if mean < 0.6*documentTokens || mean > documentTokens || row.options.Document < int64(mean) || row.options.Document > 2*documentTokens {
			t.Errorf("%s: documents of %.0f on average, %d as positions have it", row.Name, mean, row.options.Document)
		}
	}
	if many == 0 {
		t.Error("no row has several documents in a sequence")
	}
}

// Every row can be planned for the GPU it is meant for.
func TestGPURowsCanBePlanned(t *testing.T) {
	m, err := machine.Parse("h200,host:125GiB")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, row := range gpuRows() {
		if names[row.Name] {
			t.Errorf("two rows are called %s", row.Name)
		}
		names[row.Name] = true
		if testing.Short() || row.options.Choose == nil {
			continue
		}
		made, err := openBench(row.model)
		if err != nil {
			t.Fatal(err)
		}
		job, err := made.Plan(row.request(m, &rig.Rig{}))
		if err != nil {
			t.Errorf("%s: %v", row.Name, err)
			continue
		}
		row.Seconds = job.Plan.Forecast.StepSeconds
		row.account(job.Plan, machine.Device{Compute: m.Devices[0].Compute, Link: m.Devices[0].Link})
		t.Logf("%s: %.4g s, %.0f%% of roofline by %s, %.1f TFLOP/s, %v on the GPU, %v on the host", row.Name,
			row.Seconds, 100*row.Burst.Share, row.Burst.By, row.Useful/1e12, units.Bytes(row.Arena), units.Bytes(row.Host))
		if row.Burst.Share > 1 || row.Burst.Share < 0.02 {
			t.Errorf("%s is forecast at %v of its bound", row.Name, row.Burst.Share)
		}
		made.Close()
	}
	if len(names) < 30 {
		t.Errorf("%d rows are too few to judge forecasts by", len(names))
	}
}

// Rates come from a file of an earlier run, which is checked.
func TestBenchRates(t *testing.T) {
	for name, spoil := range map[string]func(*GPUReport){
		"":                   func(*GPUReport) {},
		"the link runs at 0": func(r *GPUReport) { r.Rates.Link.In = 0 },
		"has 1 rates, want 2": func(r *GPUReport) {
			r.Rates.Tables = machine.Tables{"bf16": {{Kind: op.Add}: {Axes: [][]int64{{1, 2}}, Rates: []float64{1}}}}
		},
	} {
		var earlier GPUReport
		earlier.Rates.Link.In, earlier.Rates.Compute.F32 = 55e9, 50e12
		earlier.Rates.Tables = machine.Tables{"bf16": {{Kind: op.Add}: {Axes: [][]int64{{1, 2}}, Rates: []float64{3, 4}}}}
		spoil(&earlier)
		text, err := json.Marshal(earlier)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "earlier.json")
		if err := os.WriteFile(file, text, 0o644); err != nil {
			t.Fatal(err)
		}
		got, err := benchRates(&rig.Rig{}, Options{Rates: file}, nil)
		if name == "" && (err != nil || got.Link.In != 55e9 || got.Tables["bf16"][op.Variant{Kind: op.Add}].Rates[1] != 4) || name != "" && (err == nil || !strings.Contains(err.Error(), name)) {
			t.Errorf("%q: %v, %v", name, got, err)
		}
	}
}

func TestBenchWants(t *testing.T) {
	o := Options{Only: "8 GiB,50m"}
	if !o.wants("training of llama-50m") || !o.wants("in 8 GiB") || o.wants("forward") || !(Options{}).wants("forward") {
		t.Error("rows are chosen wrongly")
	}
	if _, err := GPU(context.Background(), Options{Device: "cpu"}); err == nil || !strings.Contains(err.Error(), "needs a GPU") {
		t.Errorf("bench gpu on a CPU: %v", err)
	}
}

// Kernels are measured on operands that mean something, on any device.
func TestKernelsAreMeasured(t *testing.T) {
	d := cpu.Open(cpu.Options{Threads: 1})
	defer d.Close()
	list, err := gpuKernels(64, 96, 4096)
	if err != nil {
		t.Fatal(err)
	}
	done, err := benchKernels(d, list, units.Rate(1e9), Options{Only: "nf4,dyn8"})
	if err != nil || len(done) != 2 {
		t.Fatalf("%d of 2 kernels measured: %v", len(done), err)
	}
	for _, k := range done {
		if !(k.Seconds > 0 && k.Share > 0) || k.Share != float64(k.Rate)/1e9 {
			t.Errorf("%+v", k)
		}
	}
}

// A row is planned, run, timed and compared with its bounds, on whatever is called a GPU.
func TestGPURowIsMeasured(t *testing.T) {
	here, err := rig.Open("fake:0", rig.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := here.Close(); err != nil {
		t.Fatal(err)
	}
	rates := machine.Device{Link: machine.Link{In: 1e9, Out: 1e9, Bidirectional: 1}, Bandwidth: 1e10, Compute: machine.Compute{F32: 1e12}, Sustained: machine.Compute{F32: 5e11}}
	here.Machine.Devices[0] = here.Machine.Devices[0].WithMeasured(rates)
	if m, err := machine.Parse(here.Machine.String()); err != nil || m.Devices[0].Sustained != rates.Sustained || m.Host.Update != here.Machine.Host.Update {
		t.Errorf("%s is read as %v (%v)", here.Machine, m, err)
	}
	row := &GPURow{Name: "a row", model: "llama-50m", options: work(spillway.Eval, 1, 8, 0, savedAll)}
	row.options.Precision = dtype.F32
	if err := row.measure(t.Context(), here, rates); err != nil {
		t.Fatal(err)
	}
	if !(row.Best > 0 && row.Best <= row.Seconds) || row.Burst.By != "arithmetic" || row.Sustained.Seconds != 2*row.Burst.Seconds || !(row.Forecast > 0) || row.Driver == 0 {
		t.Errorf("%+v", row)
	}
	r := &GPUReport{Results: []*GPURow{row}}
	r.conclude()
	if _, err := json.Marshal(r); err != nil {
		t.Error(err)
	}
}
