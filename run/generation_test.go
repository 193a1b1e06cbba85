package run_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"spillway"
	"spillway/device"
	"spillway/device/cpu"
	"spillway/dtype"
	"spillway/generate"
	"spillway/plan"
	"spillway/planner"
	"spillway/planner/strategy"
	"spillway/quant"
	"spillway/run"
)

// A decode step reads all weights but the embedding once, and the keys and values of every
// sequence once: W + S·K, which is what binds it.
func TestDecodeIsForecastByItsMemoryTraffic(t *testing.T) {
	m := open(t, "llama-3-8b")
	o := spillway.Options{Task: spillway.Generate, Precision: dtype.BF16, Machine: parse(t, "h200"), Generation: run.Generation{Context: 8192, Streams: 16}}
	job, err := m.Plan(o)
	if err != nil {
		t.Fatal(err)
	}
	f, err := job.ForecastGeneration()
	if err != nil {
		t.Fatal(err)
	}
	const layers, position = 32, 2 * 8 * 128 * 2 // keys and values of a layer, bf16
	weights := 2 * (job.Spec.Count() - 128256*4096)
	if f.TokenBytes != layers*position || f.CacheBytes != 16*8192*f.TokenBytes || f.Pages != 16*8192/64 {
		t.Errorf("a token takes %d bytes, the cache %d in %d pages", f.TokenBytes, f.CacheBytes, f.Pages)
	}
	if len(f.Decode) != 5 {
		t.Fatalf("steps of %+v", f.Decode)
	}
	for _, d := range f.Decode {
		for _, s := range []run.StepForecast{d.Half, d.Full} {
			want := float64(weights + d.Streams*s.Positions*layers*position)
			if got := float64(s.Bytes); got < want || got > 1.02*want {
				t.Errorf("%d sequences at %d positions: %.4g bytes, W + S·K is %.4g", d.Streams, s.Positions, got, want)
			}
			if least := want / 4.8e12; s.Seconds < least {
				t.Errorf("%d sequences at %d positions: %.3g s, reading takes %.3g", d.Streams, s.Positions, s.Seconds, least)
			}
		}
		if d.Full.Seconds <= d.Half.Seconds || d.Half.Positions != 4096 {
			t.Errorf("%d sequences: %.3g s at %d positions, %.3g at %d", d.Streams, d.Half.Seconds, d.Half.Positions, d.Full.Seconds, d.Full.Positions)
		}
	}
	if f.PromptSeconds > f.ChunkSeconds || f.PromptTokens != 1000 {
		t.Errorf("%.3g s for %d tokens of a prompt, %.3g for a chunk of %d", f.PromptSeconds, f.PromptTokens, f.ChunkSeconds, f.Chunk)
	}
}

// The host waits for each step, so that the time until it and the device notice each other is in every step.
func TestStepsWaitForTheHost(t *testing.T) {
	m := open(t, "tiny-llama")
	seconds := func(handoff time.Duration) float64 {
		on := parse(t, "h200")
		on.Devices[0].Handoff = handoff
		job, err := m.Plan(spillway.Options{Task: spillway.Generate, Precision: dtype.BF16, Machine: on, Generation: run.Generation{Context: 64, Streams: 1}})
		if err != nil {
			t.Fatal(err)
		}
		s, err := job.ForecastStep(1, 32)
		if err != nil || math.Abs(s.TokensPerSec*s.Seconds-1) > 1e-6 {
			t.Fatalf("%+v, %v", s, err)
		}
		return s.Seconds
	}
	if without, with := seconds(0), seconds(50*time.Microsecond); math.Abs(with-without-50e-6) > 1e-9 {
		t.Errorf("a captured step is forecast to take %.4g s, with 50 µs from the GPU to the host and back %.4g", without, with)
	}
}

// What a plan to generate takes is what it says, with streamed weights too, and neither
// streaming nor a plan that was saved changes a bit.
func TestGenerationMemoryIsExact(t *testing.T) {
	m := open(t, configFile(t, tinyLlama(true, 0)))
	m.Seed = 5
	g := run.Generation{Context: 48, Streams: 4, Chunk: 32, Page: 8}
	var want []float32
	var resident int64 // peak with all weights on the device
	for _, c := range []struct {
		name   string
		change func(o *spillway.Options)
	}{
		{"resident", func(o *spillway.Options) {}},
		{"streamed", func(o *spillway.Options) { o.Constraints = strategy.Constraints{Weights: plan.OnHost} }},
		{"from disk", func(o *spillway.Options) {
			o.Constraints, o.Disk = strategy.Constraints{Weights: plan.OnDisk}, t.TempDir()
		}},
		{"under a limit", func(o *spillway.Options) { o.MaxMemory = fmt.Sprintf("%dB", resident-12<<10) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			dev := cpu.Open(cpu.Options{})
			defer dev.Close()
			o := spillway.Options{Task: spillway.Generate, Generation: g, Machine: parse(t, "gpu:1GiB,host:4GiB"), On: []device.Device{dev}}
			c.change(&o)
			job, err := m.Plan(o)
			if err != nil {
				t.Fatal(err)
			}
			if streamed := strings.Contains(job.Plan.Strategy, "offload"); streamed != (c.name != "resident") {
				t.Errorf("the strategy is %s, %v", job.Plan.Strategy, job.Plan.Peak())
			}
			if same, err := m.Plan(job.Options); err != nil || same.Plan.Strategy != job.Plan.Strategy { // as where a device has less than expected
				t.Errorf("planned again with its own options: %v", err)
			}
			got := generatedBy(t, job)
			if want == nil {
				want, resident = got, job.Plan.Peak()[plan.OnDevice]
			}
			if !slices.Equal(got, want) {
				t.Error("logits are others than with all weights on the device")
			}
			if _, peak := dev.Allocated(); peak != job.Plan.Peak()[plan.OnDevice] || job.Plan.Forecast.PeakBytes[plan.OnDevice] != peak {
				t.Errorf("%d bytes were taken of the device, the plan says %d, its forecast %d", peak, job.Plan.Peak()[plan.OnDevice], job.Plan.Forecast.PeakBytes[plan.OnDevice])
			}
			var file bytes.Buffer
			if err := job.Plan.Write(&file); err != nil {
				t.Fatal(err)
			}
			saved, err := plan.Read(&file)
			if err != nil {
				t.Fatal(err)
			}
			o.Generation = run.Generation{} // the plan says it
			again, err := m.UsePlan(saved, o)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(generatedBy(t, again), want) {
				t.Error("logits are others with the plan from a file")
			}
		})
	}
}

// generatedBy are the logits of some steps.
func generatedBy(t *testing.T, job *run.Run) (all []float32) {
	t.Helper()
	if err := job.Start(); err != nil {
		t.Fatal(err)
	}
	e, err := generate.NewSession(job)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		q, err := e.Add(slices.Repeat([]int32{7, 3, int32(9 + i)}, 4+3*i))
		for range 4 {
			if err = errors.Join(err, e.Step(context.Background())); err == nil {
				all = append(all, q.Logits()...)
				err = q.Append(int32(i + 11))
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := job.Close(); err != nil {
		t.Fatal(err)
	}
	return all
}

// Layers with a sliding window store what a chunk sees, whatever the context.
func TestWindowsHoldWhatTheySee(t *testing.T) {
	m := open(t, "../testdata/reference/mistral") // a window of 5
	bytes := func(context int64) (n int64) {
		job, err := m.Plan(spillway.Options{Task: spillway.Generate, Machine: parse(t, "gpu:1GiB,host:4GiB"), Generation: run.Generation{Context: context, Chunk: 8, Page: 4, Streams: 2}})
		if err != nil {
			t.Fatal(err)
		}
		f, err := job.ForecastGeneration()
		if err != nil {
			t.Fatal(err)
		}
		return f.CacheBytes
	}
	if short, long := bytes(64), bytes(4096); short != long {
		t.Errorf("the cache takes %d bytes for 64 tokens, %d for 4096", short, long)
	}
	if short, long := bytes(8), bytes(64); short >= long {
		t.Errorf("the cache takes %d bytes for 8 tokens, %d for 64", short, long)
	}
}

// What a cache cannot be, or does not fit, is refused with what can.
func TestGenerationRefuses(t *testing.T) {
	m := open(t, "llama-3-8b")
	for want, o := range map[string]spillway.Options{
		"say with streams":                   {Task: spillway.Generate, BatchSize: 4},
		"say with context":                   {Task: spillway.Generate, Seq: 128},
		"packed documents":                   {Task: spillway.Generate, Packed: true},
		"they are for the task generate":     {Task: spillway.Infer, Generation: run.Generation{Context: 5}},
		"none can be negative":               {Task: spillway.Generate, Generation: run.Generation{Streams: -1}},
		"a cache in nf4":                     {Task: spillway.Generate, Generation: run.Generation{Key: quant.NF4}},
		"at most":                            {Task: spillway.Generate, Generation: run.Generation{Streams: math.MaxInt64}},
		"streams of 1 instead of 8":          {Task: spillway.Generate, Precision: dtype.BF16, Generation: run.Generation{Context: 65536, Streams: 8}},
		"a context of 8192 instead of 65536": {Task: spillway.Generate, Precision: dtype.BF16, Generation: run.Generation{Context: 65536, Streams: 8}},
	} {
		o.Machine = parse(t, "gpu:16GiB,host:64GiB")
		if _, err := m.Plan(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q in it", err, want)
		}
	}
	gpt := open(t, configFile(t, tinyGPT2)) // 16 learned positions
	if _, err := gpt.Plan(spillway.Options{Task: spillway.Generate, Machine: parse(t, "cpu:1GiB,host:4GiB"), Generation: run.Generation{Context: 17}}); err == nil || !strings.Contains(err.Error(), "17 positions, the model has learned 16") {
		t.Error(err)
	}
	encoder := open(t, "../testdata/reference/encoder-pre-relu")
	if _, err := encoder.Plan(spillway.Options{Task: spillway.Generate, Machine: parse(t, "cpu:1GiB,host:4GiB")}); err == nil || !strings.Contains(err.Error(), "cannot generate") {
		t.Error(err)
	}
	far, err := m.Plan(spillway.Options{Task: spillway.Generate, Precision: dtype.BF16, Machine: parse(t, "gpu:40GiB,host:64GiB"), Generation: run.Generation{Context: 16384}})
	if err != nil || !strings.Contains(strings.Join(far.Notices, " "), "16384 tokens, and the model was made for 8192") {
		t.Error(err, far)
	}
	var fit *planner.FitError
	if _, err := m.TryPlan(spillway.Options{Task: spillway.Generate, Precision: dtype.BF16, Machine: parse(t, "gpu:16GiB,host:64GiB"), Generation: run.Generation{Context: 65536, Streams: 8}}); !errors.As(err, &fit) || len(fit.Options) > 0 {
		t.Error(fmt.Sprint(err))
	}
}

// Where the blocks of a model are on two devices, so are their caches, and the logits are the
// same bits.
func TestGenerationOverDevices(t *testing.T) {
	m := open(t, configFile(t, tinyLlama(true, 0)))
	m.Seed = 5
	var want []float32
	for n := 1; n <= 2; n++ {
		o := spillway.Options{Task: spillway.Generate, Generation: run.Generation{Context: 48, Streams: 4, Chunk: 32, Page: 8}, Machine: parse(t, fmt.Sprintf("%dxgpu:1GiB,host:4GiB", n))}
		for range n {
			o.On = append(o.On, openDevice(t))
		}
		if n == 2 {
			o.Strategy = string(strategy.ModelParallel)
		}
		job, err := m.Plan(o)
		if err != nil {
			t.Fatal(err)
		}
		caches := map[int]bool{}
		for _, b := range job.Plan.Buffers {
			caches[b.Arena] = caches[b.Arena] || b.Class == plan.Cache
		}
		if caches[0] && n == 2 && !caches[1] {
			t.Error("all caches are on one device")
		}
		got := generatedBy(t, job)
		if want == nil {
			want = got
		}
		if !slices.Equal(got, want) {
			t.Errorf("other logits on %d devices", n)
		}
	}
}

// A plan that streams weights is the one that generates fastest, not the one that computes
// prompts fastest. Here the CPU is too slow to help.
func TestStreamedGenerationIsChosenForTokens(t *testing.T) {
	m := open(t, "llama-3-8b")
	o := spillway.Options{Task: spillway.Generate, Precision: dtype.BF16, Machine: parse(t, "rtx4090,host:64GiB@update=10MB/s"), MaxMemory: "12GiB", Generation: run.Generation{Context: 4096, Streams: 2}}
	job, err := m.Plan(o)
	if err != nil {
		t.Fatal(err)
	}
	f, err := job.ForecastGeneration()
	if err != nil {
		t.Fatal(err)
	}
	var streamed int64 // what a token waits for
	for k := range job.Plan.Slabs {
		if s := &job.Plan.Slabs[k]; job.Plan.TierOf(s.Weight) != plan.OnDevice {
			streamed += s.WeightBytes
		}
	}
	left := job.Plan.Devices[0].Budget - job.Plan.Peak()[plan.OnDevice]
	if largest := int64(436 << 20); left > largest { // a layer's weights
		t.Errorf("%d bytes of the device are left while %d are streamed", left, streamed)
	}
	if got, least := f.Decode[0].Full.Seconds, float64(streamed)/26e9; got < least || got > 1.1*least {
		t.Errorf("a token takes %.3g s, its transfers %.3g", got, least)
	}
}

// Where the CPU computes from host memory while the link brings weights, both end together: a token
// takes what the weights off the device take at the rate that host memory has for both, within 10%.
func TestCPUAndLinkEndTogether(t *testing.T) {
	m := open(t, "llama-3-8b")
	for _, host := range []float64{70, 100, 150} { // GB/s of the CPU alone; with copies it is 1.2 times that
		o := spillway.Options{Task: spillway.Generate, Precision: dtype.BF16, Machine: parse(t, fmt.Sprintf("h200,host:128GiB@update=%gGB/s", host)), MaxMemory: "4GiB", Generation: run.Generation{Context: 1024}}
		job, err := m.Plan(o)
		if err != nil {
			t.Fatal(err)
		}
		f, err := job.ForecastGeneration()
		if err != nil {
			t.Fatal(err)
		}
		d := f.Division
		if d == nil || d.CPU == 0 || d.Stream == 0 {
			t.Fatalf("the division is %+v", d)
		}
		link := 55.0
		bound := float64(d.StreamBytes+d.CPUBytes) / 1e9 / min(1.2*host, host+link)
		if got := f.Decode[0].Full.Seconds; got < 0.99*bound || got > 1.1*bound {
			t.Errorf("with %v GB/s a token takes %.4g s, the bound is %.4g: %+v", host, got, bound, d)
		}
		if prompt := f.PromptSeconds; prompt > 1.1*16.06e9/55e9 { // prompts are the GPU's, and stream everything once
			t.Errorf("a prompt of 1,000 tokens takes %.3g s", prompt)
		}
	}
}

// Steps on a GPU that is only described are forecast near what was measured on such a GPU: the
// kernels of a step of an 8B model in bf16 took 4.02 ms on an H200.
func TestDescribedGPUsDecodeAtTheirMemorysRate(t *testing.T) {
	r, err := open(t, "llama-3-8b").Plan(spillway.Options{Task: spillway.Generate, Machine: parse(t, "h200"), Precision: dtype.BF16, Generation: run.Generation{Context: 1024}})
	if err != nil {
		t.Fatal(err)
	}
	f, err := r.ForecastGeneration()
	if err != nil {
		t.Fatal(err)
	}
	const measured = 249.0
	if d := f.Decode[0]; math.Abs(d.Full.TokensPerSec/measured-1) > 0.1 || !d.Captured || d.Full.Bound != "memory" {
		t.Errorf("forecast %+v, measured %v tokens/s", d, measured)
	}
}

// A step that draws tokens is one line of kernels where it is captured: nothing of its graph waits for another lane. A plan that was saved is
// made again alike.
func TestCapturedStepsAreOneLine(t *testing.T) {
	o := spillway.Options{Task: spillway.Generate, Machine: parse(t, "h200"), Precision: dtype.BF16, Generation: run.Generation{Context: 1024, Streams: 16}}
	m := open(t, "llama-3-8b")
	made, err := m.Plan(o)
	if err != nil {
		t.Fatal(err)
	}
	again, err := m.UsePlan(made.Plan, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []*spillway.Run{made, again} {
		drawing := 0
		for _, ph := range r.Plan.Phases {
			if !ph.Captured || ph.Name != plan.Draw(1) && ph.Name != plan.Draw(16) {
				continue
			}
			drawing++
			for i, s := range ph.Instructions {
				if s.Verb != plan.Free && (s.Lane != plan.Compute || len(s.After) > 0) {
					t.Errorf("%s: instruction %d, %s, is of lane %s and waits for %v", ph.Name, i, s.Verb, s.Lane, s.After)
				}
			}
		}
		if drawing != 2 {
			t.Errorf("%d captured steps of 1 and 16 rows draw tokens, want 2", drawing)
		}
	}
}

// A described H200 stands in a server. Three such hosts with 16 cores wrote 9.7 to 10.9 tokens/s of an 8B model in
// bf16 within 4 GiB; a desktop's memory would give 4.7.
func TestDescribedServersReadHostMemoryAsMeasured(t *testing.T) {
	job, err := open(t, "llama-3-8b").Plan(spillway.Options{Task: spillway.Generate, Precision: dtype.BF16, Machine: parse(t, "h200"), MaxMemory: "4GiB", Generation: run.Generation{Context: 1024}})
	if err != nil {
		t.Fatal(err)
	}
	f, err := job.ForecastGeneration()
	if err != nil {
		t.Fatal(err)
	}
	if got := f.Decode[0].Full.TokensPerSec; got < 0.95*9.7 || got > 1.05*10.9 {
		t.Errorf("forecast %.3g tokens/s, measured 9.7 to 10.9", got)
	}
}

// The CPU computes blocks also where the host could not store the whole model, but what the device leaves: of two machines
// the one with more memory on its GPU and less on its host writes no slower.
func TestCPUHelpsWhereTheHostIsSmall(t *testing.T) {
	speed := func(on string) float64 {
		job, err := open(t, "llama-3-8b").Plan(spillway.Options{Task: spillway.Generate, Precision: dtype.BF16, Machine: parse(t, on), Generation: run.Generation{Context: 1024}})
		if err != nil {
			t.Fatal(err)
		}
		f, err := job.ForecastGeneration()
		if err != nil {
			t.Fatal(err)
		}
		if f.Division == nil || f.Division.CPU == 0 {
			t.Errorf("%s: the division is %+v", on, f.Division)
		}
		return f.Decode[0].Full.TokensPerSec
	}
	if large, small := speed("gpu:12GiB,host:64GiB"), speed("gpu:12GiB,host:8GiB"); small < 0.97*large { // 15 GiB of weights
		t.Errorf("%.3g tokens/s with 8 GiB of host memory, %.3g with 64", small, large)
	}
}
