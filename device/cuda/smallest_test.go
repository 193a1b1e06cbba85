package cuda_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"spillway"
	"spillway/data"
	"spillway/device"
	"spillway/device/cuda"
	"spillway/dtype"
	"spillway/lora"
	"spillway/machine"
	"spillway/optim"
	"spillway/plan"
	"spillway/planner/strategy"
	"spillway/train"
	"spillway/units"
)

// text is what adapters are trained on, its bytes being the tokens.
var text = flag.String("text", "", "a file of text to train adapters on (default: numbers that repeat)")

// rates are what an H200 was measured at.
var rates = flag.String("rates", filepath.FromSlash("../../bench/testdata/h200.json"), "what bench gpu --json measured of the GPU")

// measured reads the rates of the GPU.
func measured(tb testing.TB) machine.Device {
	tb.Helper()
	raw, err := os.ReadFile(*rates)
	if err != nil {
		tb.Skipf("no rates of the GPU: %v", err)
	}
	var report struct{ Rates machine.Device }
	if err := json.Unmarshal(raw, &report); err != nil {
		tb.Fatal(err)
	}
	return report.Rates
}

// leanMachine is an H200 with its measured rates.
func smallMachine(tb testing.TB) machine.Machine {
	tb.Helper()
	m, err := machine.Parse("h200,host:110GiB")
	if err != nil {
		tb.Fatal(err)
	}
	m.Devices[0] = m.Devices[0].WithMeasured(measured(tb))
	return m
}

// leanOptions are adapters of rank 16 next to 4-bit weights, with 8-bit states.
func smallOptions(tb testing.TB, on device.Device, seq int64, budget units.Bytes) spillway.Options {
	tb.Helper()
	o := spillway.Options{Task: spillway.QLoRA, Seq: seq, Precision: dtype.BF16, Machine: smallMachine(tb), On: []device.Device{on}, Budget: int64(budget)}
	o.Adapters.Rank, o.Adapters.Alpha, o.Adapters.Targets = 16, 32, []string{lora.AllLinear}
	var err error
	if o.Optimizer, err = optim.Parse("paged_adamw_8bit"); err != nil {
		tb.Fatal(err)
	}
	o.Optimizer.LR = 1e-3
	return o
}

// bytesOf are documents whose bytes are tokens.
type bytesOf [][]byte

func (b bytesOf) Len() int64 { return int64(len(b)) }

func (b bytesOf) Document(i int64) (data.Document, error) {
	d := data.Document{Tokens: make([]int32, len(b[i]))}
	for k, c := range b[i] {
		d.Tokens[k] = int32(c)
	}
	return d, nil
}

// reading is a feed of the text.
func reading(tb testing.TB, seq int64) train.Feed {
	tb.Helper()
	all := make([]byte, 1<<20)
	for i := range all {
		all[i] = byte(i * i % 97)
	}
	if *text != "" {
		var err error
		if all, err = os.ReadFile(*text); err != nil {
			tb.Fatal(err)
		}
	}
	loader, err := data.NewLoader(bytesOf(slices.Collect(slices.Chunk(all, 4096))), data.Config{Length: int(seq), InOrder: true})
	if err != nil {
		tb.Fatal(err)
	}
	return train.NewTokens(loader)
}

// smallestRun is a training run of adapters in as little memory as it can. Benchmarks tell it step by step on standard error: a
// GPU is lent for seconds, and what was measured must not be lost.
type smallestRun struct {
	Plan    *plan.Plan
	Losses  []float64
	Seconds []float64
	begun   time.Time
	quiet   bool
}

func (l *smallestRun) report(format string, args ...any) {
	if l.quiet {
		return
	}
	fmt.Fprintf(os.Stderr, "%6.1f s  %s\n", time.Since(l.begun).Seconds(), fmt.Sprintf(format, args...))
}

// middle is the median time of the iterations after the first, which captures the others.
func (l *smallestRun) middle() float64 {
	list := slices.Sorted(slices.Values(l.Seconds[min(1, len(l.Seconds)-1):]))
	return list[len(list)/2]
}

// bound is the least an iteration of the plan takes on a GPU of these rates: its
// arithmetic as large matmuls, or what crosses the link.
func (l *smallestRun) bound(r machine.Device) float64 {
	f := l.Plan.Forecast
	return max(f.Flops/float64(r.Compute.BF16), float64(f.BytesIn)/float64(r.Link.In), float64(f.BytesOut)/float64(r.Link.Out))
}

// trainLean starts the plan of a job and trains for some iterations. after is called at
// the end, while everything is still allocated.
func trainSmallest(tb testing.TB, job *spillway.Run, iterations int, after func(*smallestRun)) *smallestRun {
	tb.Helper()
	_, reported := tb.(*testing.B)
	l, o := &smallestRun{begun: time.Now(), Plan: job.Plan, quiet: !reported}, job.Options
	peak := job.Plan.Peak()
	l.report("%s, %d tokens: %s; forecast %.3f s, device %v, host %v", job.Plan.Model, o.Seq, job.Plan.Strategy, job.Plan.Forecast.StepSeconds,
		units.Bytes(peak[plan.OnDevice]), units.Bytes(peak[plan.Pinned]+peak[plan.OnHost]))
	if err := job.Start(); err != nil {
		tb.Fatal(err)
	}
	defer func() {
		if err := job.Close(); err != nil {
			tb.Error(err)
		}
	}()
	l.report("started")
	t, err := train.New(job, reading(tb, o.Seq), train.Config{})
	if err != nil {
		tb.Fatal(err)
	}
	for range iterations {
		begin := time.Now()
		r, err := t.Step()
		if err != nil {
			tb.Fatal(err)
		}
		l.Losses, l.Seconds = append(l.Losses, r.Loss), append(l.Seconds, time.Since(begin).Seconds())
		l.report("loss %.4f, %.3f s", r.Loss, l.Seconds[len(l.Seconds)-1])
	}
	if after != nil {
		after(l)
	}
	return l
}

// opened plans a model of a preset.
func opened(tb testing.TB, model string, o spillway.Options) *spillway.Run {
	tb.Helper()
	m, err := spillway.Open(model)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { m.Close() })
	job, err := m.Plan(o)
	if err != nil {
		tb.Fatal(err)
	}
	return job
}

func lent(tb testing.TB) *cuda.Device {
	tb.Helper()
	d, err := cuda.Open(cuda.Options{Cache: filepath.Join(os.TempDir(), "spillway-kernels")})
	if err != nil {
		tb.Skipf("no GPU to try: %v", err)
	}
	tb.Cleanup(func() { d.Close() })
	return d
}

// Adapters next to 4-bit weights learn the same on the GPU wherever the weights rest.
func TestSmallestPlansAgree(t *testing.T) {
	d := lent(t)
	whole := trainSmallest(t, within(t, "small-llama", d, 128, 2*units.GiB, strategy.Constraints{}), 6, nil)
	streamed := smallOptions(t, d, 128, 0)
	streamed.Choose = strategy.Uniform(true, true, strategy.SaveNone, 2)
	if other := trainSmallest(t, opened(t, "small-llama", streamed), 6, nil); !slices.Equal(whole.Losses, other.Losses) {
		t.Errorf("losses %v with all on the GPU, %v with weights from the host", whole.Losses, other.Losses)
	}
	if !(whole.Losses[5] < whole.Losses[0]) {
		t.Errorf("losses %v do not fall", whole.Losses)
	}
}

// footprint is what the driver is expected to count when a plan runs on the GPU.
func footprint(d *cuda.Device, p *plan.Plan) int64 {
	return d.Footprint(p.Peak()[plan.OnDevice], p.Peak()[plan.Pinned])
}

// within plans a model so that all the driver counts is at most so much: its own needs and
// the kernels', which are known when they were asked for, are taken off.
func within(tb testing.TB, model string, d *cuda.Device, seq int64, most units.Bytes, constrain strategy.Constraints) *spillway.Run {
	tb.Helper()
	o := smallOptions(tb, d, seq, most)
	o.Constraints = constrain
	o.Constraints.Updates = strategy.ByDevice // the CPU rounds roots otherwise than the GPU
	for {
		job := opened(tb, model, o)
		over := footprint(d, job.Plan) - int64(most)
		if over <= 0 {
			return job
		}
		o.Budget -= over
	}
}

// 70B Llamas with all weights on the GPU: with plain checkpointing, and as is fastest;
// and with the weights that do not fit into a quarter of that in host memory. All learn the
// same to the bit.
func BenchmarkLean70B(b *testing.B) {
	resident := strategy.Constraints{Weights: plan.OnDevice}
	checkpointed := strategy.Constraints{Weights: plan.OnDevice, Activations: strategy.Recomputed}
	for _, model := range []string{"llama-2-70b", "llama-3-70b"} {
		for _, seq := range []int64{2048, 4096} {
			b.Run(fmt.Sprintf("%s/%d", model, seq), func(b *testing.B) {
				d := lent(b)
				for b.Loop() {
					plain := smallest70B(b, d, model, seq, 48*units.GiB, checkpointed)
					little := smallest70B(b, d, model, seq, 12*units.GiB, strategy.Constraints{})
					best := smallest70B(b, d, model, seq, 48*units.GiB, resident)
					b.ReportMetric(plain.middle()/little.middle(), "of-checkpointed")
					b.ReportMetric(best.middle()/little.middle(), "of-fastest-resident")
					if !slices.Equal(plain.Losses, little.Losses) || !slices.Equal(best.Losses, little.Losses) {
						b.Errorf("losses %v and %v with all weights on the GPU, %v streamed", plain.Losses, best.Losses, little.Losses)
					}
				}
			})
		}
	}
}

// lean70B trains within what the driver counts, and says how that and the time compare
// with what was expected and with the bound.
func smallest70B(b *testing.B, d *cuda.Device, model string, seq int64, most units.Bytes, constrain strategy.Constraints) *smallestRun {
	b.Helper()
	job, r := within(b, model, d, seq, most, constrain), measured(b)
	expected := footprint(d, job.Plan)
	return trainSmallest(b, job, 6, func(l *smallestRun) {
		free, total, err := d.Memory()
		if err != nil {
			b.Fatal(err)
		}
		took, useful := l.middle(), 4*float64(job.Spec.Count())*float64(seq)
		l.report("%v at most: the driver counts %v, %+.2f%% expected; %.3f s, %+.1f%% expected; %.0f tokens/s, %.1f%% of roofline, %.0f TFLOP/s counted as 4·P·tokens",
			most, units.Bytes(total-free), 100*(float64(expected)/float64(total-free)-1), took, 100*(l.Plan.Forecast.StepSeconds/took-1),
			float64(seq)/took, 100*l.bound(r)/took, useful/took/1e12)
		if l.Losses[len(l.Losses)-1] >= l.Losses[0] || total-free > int64(most) {
			b.Errorf("losses %v, the driver counts %d bytes", l.Losses, total-free)
		}
	})
}
