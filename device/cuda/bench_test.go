package cuda

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"spillway/arch"
	"spillway/device"
	"spillway/dtype"
	"spillway/executor"
	"spillway/graph"
	"spillway/internal/tiny"
	"spillway/machine"
	"spillway/op"
	"spillway/plan"
	"spillway/planner"
	"spillway/planner/strategy"
	"spillway/shape"
	"spillway/spec"
)

// Benchmarks on the GPU. Figures are shares of what the same run measured as the
// physical bound.

// rates of an H200, for the planner; the plans below are given.
var rates = machine.Device{Compute: machine.Compute{BF16: 700e12, F32: 60e12}, Bandwidth: 4e12, Link: machine.Link{In: 55e9, Out: 55e9, Latency: 8 * time.Microsecond}, Launch: 4 * time.Microsecond}

// shape11B is the Llama shape of 1.1 billion params.
const shape11B = `{"model_type":"llama","vocab_size":32000,"hidden_size":2048,"num_hidden_layers":22,
"num_attention_heads":32,"num_key_value_heads":4,"intermediate_size":5632,"rms_norm_eps":1e-5,
"tie_word_embeddings":false,"max_position_embeddings":2048}`

func siteOn(d *Device, budget int64) planner.Site {
	site := planner.Site{Device: rates, DType: dtype.BF16, Budget: budget, HostBudget: 110 << 30, Alignment: planner.Alignment, Kernels: d, HostPinned: true}
	site.Device.Name = d.Info().Name
	return site
}

// started plans a model and starts it with random weights.
func started(b *testing.B, d *Device, m *spec.Model, g planner.Goal, budget int64, choose func(slabs, blocks int) strategy.Choice) (*plan.Plan, *executor.Executor) {
	b.Helper()
	p, err := planner.Build(m, g, siteOn(d, budget), choose)
	if err != nil {
		b.Fatal(err)
	}
	e, err := executor.New(p, []device.Device{d})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := e.Close(); err != nil {
			b.Error(err)
		}
	})
	if err := e.WriteConstants(); err != nil {
		b.Fatal(err)
	}
	for _, w := range append(e.Weights(), e.States()...) {
		if w.State != "" && w.State != executor.Master {
			continue // moments begin at zero
		}
		if err := e.Write(w, noise(w.Type.DType)); err != nil {
			b.Fatal(err)
		}
	}
	return p, e
}

// noise fills memory with small random numbers, a block of them over and over.
func noise(t dtype.Type) func(int64, []byte) error {
	block := noiseOf(t)
	return func(_ int64, chunk []byte) error {
		var group sync.WaitGroup
		for from := 0; from < len(chunk); from += 64 << 20 {
			group.Go(func() {
				for at := from; at < min(from+64<<20, len(chunk)); {
					at += copy(chunk[at:min(from+64<<20, len(chunk))], block)
				}
			})
		}
		group.Wait()
		return nil
	}
}

var noiseOf = func() func(dtype.Type) []byte {
	made := map[dtype.Type][]byte{}
	return func(t dtype.Type) []byte {
		if made[t] == nil {
			a := op.NewArray(op.Type{DType: t, Shape: shape.Of(1 << 18)})
			r := rand.New(rand.NewPCG(1, 2))
			for i := range a.F {
				a.F[i] = 0.02 * r.NormFloat64()
			}
			made[t], _ = a.Encode()
		}
		return made[t]
	}
}()

// linkRate measures large copies from page-locked memory, in bytes per second.
func linkRate(b *testing.B, d *Device) float64 {
	b.Helper()
	const size = 1 << 30
	host, err := d.HostAlloc(size)
	if err != nil {
		b.Fatal(err)
	}
	defer host.Free()
	gpu, err := d.Alloc(size)
	if err != nil {
		b.Fatal(err)
	}
	defer gpu.Free()
	q, err := d.Queue("in")
	if err != nil {
		b.Fatal(err)
	}
	defer q.Close()
	best := 0.0
	for range 4 {
		start := time.Now()
		if err := q.Copy(device.Buffer{Memory: gpu, Bytes: size}, device.Buffer{Memory: host, Bytes: size}); err != nil {
			b.Fatal(err)
		}
		if err := q.Sync(); err != nil {
			b.Fatal(err)
		}
		best = max(best, size/time.Since(start).Seconds())
	}
	return best
}

// Forward of the Llama-3-8B shape with all weights in host memory and 4 GiB of the GPU.
func BenchmarkStreamedForward(b *testing.B) {
	for _, size := range [][2]int64{{1, 512}, {4, 2048}} {
		b.Run(fmt.Sprintf("%dx%d", size[0], size[1]), func(b *testing.B) {
			d := openGPU(b, Options{})
			b.Cleanup(func() { d.Close() })
			link := linkRate(b, d)
			config, err := arch.Preset("llama-3-8b")
			if err != nil {
				b.Fatal(err)
			}
			m := tiny.Model(b, string(config), graph.Config{MicroBatchSize: size[0], Seq: size[1], Task: graph.Eval, DType: dtype.BF16})
			begin := time.Now()
			p, e := started(b, d, m, planner.Goal{}, 4<<30, strategy.Uniform(true, false, strategy.SaveAll, 3))
			b.Logf("start %.1f s, arena %d MiB, budget 4096 MiB", time.Since(begin).Seconds(), p.Arenas[0].Bytes>>20)
			fillBatch(b, e, 128256, 1)
			run := func() {
				if err := e.Iterate(context.Background(), executor.IterationArgs{}); err != nil {
					b.Fatal(err)
				}
			}
			run()
			before := e.Counters().BytesIn
			for b.Loop() {
				run()
			}
			seconds := b.Elapsed().Seconds() / float64(b.N)
			moved := float64(e.Counters().BytesIn-before) / float64(b.N)
			b.ReportMetric(moved/seconds/1e9, "GB/s")
			b.ReportMetric(moved/seconds/link, "of-link")
			b.ReportMetric(float64(p.Arenas[0].Bytes)/(1<<30), "GiB")
		})
	}
}

// A training iteration of the 1.1B shape with everything on the GPU.
func BenchmarkResidentTraining(b *testing.B) {
	for _, level := range []strategy.Level{strategy.SaveAll, strategy.SaveNone} {
		b.Run(map[strategy.Level]string{strategy.SaveAll: "kept", strategy.SaveNone: "recomputed"}[level], func(b *testing.B) {
			d := openGPU(b, Options{})
			b.Cleanup(func() { d.Close() })
			m := tiny.Model(b, shape11B, graph.Config{MicroBatchSize: 4, Seq: 2048, Task: graph.Train, DType: dtype.BF16})
			goal := tiny.AdamW(1, false)
			goal.Master = true
			p, e := started(b, d, m, goal, 100<<30, strategy.Uniform(false, false, level, 1))
			fillBatch(b, e, 32000, 1)
			first := iterateOnce(b, e, 0)
			i := uint64(1)
			for b.Loop() {
				iterateOnce(b, e, i)
				i++
			}
			seconds := b.Elapsed().Seconds() / float64(b.N)
			b.ReportMetric(1000*seconds, "ms/iteration")
			b.ReportMetric(6*1.1e9*8192/seconds/1e12, "TFLOP/s")
			b.ReportMetric(float64(p.Arenas[0].Bytes)/(1<<30), "GiB")
			b.Logf("losses %v to %v, launches %d", first, e.Loss(), e.Counters().Launches/e.Counters().Iterations)
		})
	}
}

// A training iteration of 32K tokens of eight layers of the Llama-3-8B shape, with all
// weights and state in host memory and 24 GiB of the GPU.
func BenchmarkStreamedTraining(b *testing.B) {
	d := openGPU(b, Options{})
	b.Cleanup(func() { d.Close() })
	link := linkRate(b, d)
	config, err := arch.Preset("llama-3-8b")
	if err != nil {
		b.Fatal(err)
	}
	short := strings.Replace(string(config), `"num_hidden_layers": 32`, `"num_hidden_layers": 8`, 1)
	m := tiny.Model(b, short, graph.Config{MicroBatchSize: 1, Seq: 4096, Task: graph.Train, DType: dtype.BF16})
	var params float64
	for _, p := range m.Params {
		params += float64(p.Type.Shape.Elements())
	}
	goal := tiny.AdamW(8, false)
	goal.Master = true
	begin := time.Now()
	p, e := started(b, d, m, goal, 24<<30, strategy.Uniform(true, true, strategy.SaveNone, 2))
	b.Logf("start %.1f s, arena %d MiB, forecast %.3f s by %s", time.Since(begin).Seconds(), p.Arenas[0].Bytes>>20, p.Forecast.StepSeconds, p.Forecast.Bound)
	fillBatch(b, e, 128256, 1)
	iterateOnce(b, e, 0)
	before, i := e.Counters(), uint64(1)
	for b.Loop() {
		iterateOnce(b, e, i)
		i++
	}
	after, seconds := e.Counters(), b.Elapsed().Seconds()/float64(b.N)
	in, out := float64(after.BytesIn-before.BytesIn)/float64(b.N), float64(after.BytesOut-before.BytesOut)/float64(b.N)
	b.ReportMetric(seconds, "s/iteration")
	b.ReportMetric(6*params*32768/seconds/1e12, "TFLOP/s")
	b.ReportMetric(in/seconds/link, "of-link-in")
	b.ReportMetric(out/seconds/link, "of-link-out")
}
