package cuda_test

import (
	"flag"
	"fmt"
	"math"
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
	"spillway/planner"
	"spillway/train"
	"spillway/units"
)

// text is what adapters are trained on, its bytes being the tokens.
var text = flag.String("text", "", "a file of text to train adapters on (default: numbers that repeat)")

// leanOptions are adapters of rank 16 beside 4-bit weights, with 8-bit states.
func leanOptions(tb testing.TB, on device.Device, machineText string, seq int64, budget units.Bytes) spillway.PlanOptions {
	tb.Helper()
	m, err := machine.Parse(machineText)
	if err != nil {
		tb.Fatal(err)
	}
	o := spillway.PlanOptions{Task: spillway.QLoRA, Seq: seq, Precision: dtype.BF16, Machine: m, On: []device.Device{on}, Budget: int64(budget)}
	o.Adapters.Rank, o.Adapters.Alpha, o.Adapters.Targets = 16, 32, []string{lora.AllLinear}
	if o.Optimizer, err = optim.Parse("adamw_8bit"); err != nil {
		tb.Fatal(err)
	}
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

// lean is a training of adapters, told step by step on standard error: a card is lent for
// seconds, and what was measured must not be lost.
type lean struct {
	Plan    *plan.Plan
	Losses  []float64
	Seconds []float64
	begun   time.Time
}

func (l *lean) tell(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%6.1f s  %s\n", time.Since(l.begun).Seconds(), fmt.Sprintf(format, args...))
}

// trainLean plans, starts and trains for some iterations. after is called at the end,
// while everything is still allocated.
func trainLean(tb testing.TB, model string, o spillway.PlanOptions, iterations int, after func(*plan.Plan) string) *lean {
	tb.Helper()
	l := &lean{begun: time.Now()}
	m, err := spillway.Open(model)
	if err != nil {
		tb.Fatal(err)
	}
	defer m.Close()
	job, err := m.Plan(o)
	if err != nil {
		tb.Fatal(err)
	}
	l.Plan = job.Plan
	l.tell("%s in %v: %s; forecast %.3f s, device %v, host %v", model, units.Bytes(o.Budget), job.Plan.Strategy, job.Plan.Forecast.StepSeconds,
		units.Bytes(job.Plan.Peak()[plan.OnDevice]), units.Bytes(job.Plan.Peak()[plan.Pinned]+job.Plan.Peak()[plan.OnHost]))
	e, err := job.Start()
	if err != nil {
		tb.Fatal(err)
	}
	defer func() {
		if err := e.Close(); err != nil {
			tb.Error(err)
		}
	}()
	l.tell("started")
	o.Optimizer.LR = 1e-3
	t, err := train.New(e, reading(tb, o.Seq), train.Config{Optimizer: o.Optimizer})
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
		l.tell("loss %.4f, %.3f s, %.0f tokens/s, %.0f%% of the bound", r.Loss, l.Seconds[len(l.Seconds)-1],
			float64(o.Seq)/l.Seconds[len(l.Seconds)-1], 100*job.Plan.Forecast.StepSeconds/l.Seconds[len(l.Seconds)-1])
	}
	if after != nil {
		l.tell("%s", after(job.Plan))
	}
	return l
}

func lent(tb testing.TB) *cuda.Device {
	tb.Helper()
	d, err := cuda.Open(cuda.Options{Cache: filepath.Join(os.TempDir(), "spillway-kernels")})
	if err != nil {
		tb.Skipf("no card to try: %v", err)
	}
	return d
}

// Adapters beside 4-bit weights learn the same on the card wherever the weights rest.
func TestLeanPlansAgree(t *testing.T) {
	d := lent(t)
	defer d.Close()
	whole := trainLean(t, "small-llama", leanOptions(t, d, "h200,host:100GiB", 128, units.GiB), 6, nil)
	streamed := leanOptions(t, d, "h200,host:100GiB", 128, 0)
	streamed.Choose = planner.Alike(true, true, planner.KeepNone, 2)
	if other := trainLean(t, "small-llama", streamed, 6, nil); !slices.Equal(whole.Losses, other.Losses) {
		t.Errorf("losses %v with all on the card, %v with weights from the host", whole.Losses, other.Losses)
	}
	if !(whole.Losses[5] < whole.Losses[0]) {
		t.Errorf("losses %v do not fall", whole.Losses)
	}
}

// A 70B Llama with all weights on the card, and with them in host memory.
func BenchmarkLean70B(b *testing.B) {
	d := lent(b)
	b.Cleanup(func() { d.Close() })
	counted := func(p *plan.Plan) string {
		free, total, err := d.Memory()
		if err != nil {
			b.Fatal(err)
		}
		var host int64
		for _, a := range p.Arenas {
			if a.Tier == plan.Pinned {
				host += a.Bytes
			}
		}
		return fmt.Sprintf("the driver counts %v taken, %v were expected", units.Bytes(total-free), units.Bytes(d.Footprint(p.Peak()[plan.OnDevice], host)))
	}
	for b.Loop() {
		whole := trainLean(b, "llama-2-70b", leanOptions(b, d, "h200,host:110GiB", 2048, 48*units.GiB), 4, counted)
		little := trainLean(b, "llama-2-70b", leanOptions(b, d, "h200,host:110GiB", 2048, 12*units.GiB), 4, counted)
		fast, slow := slices.Min(whole.Seconds), slices.Min(little.Seconds)
		b.ReportMetric(fast, "s-resident")
		b.ReportMetric(slow, "s-streamed")
		b.ReportMetric(fast/slow, "streamed-speed")
		b.ReportMetric(2048/fast, "tokens/s")
		if math.IsNaN(whole.Losses[0]) || !slices.Equal(whole.Losses, little.Losses) {
			b.Errorf("losses %v and %v", whole.Losses, little.Losses)
		}
	}
}
