package cuda

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"spillway/arch"
	"spillway/device"
	"spillway/device/sim"
	"spillway/dtype"
	"spillway/executor"
	"spillway/graph"
	"spillway/internal/tiny"
	"spillway/op"
	"spillway/plan"
	"spillway/planner"
	"spillway/shape"
	"spillway/spec"
)

// Benchmarks on the card. Figures are shares of what the same run measured as the
// physical bound.

// rates of an H200, for the planner; the plans below are insisted on.
var rates = sim.Rates{Matrix: 700e12, Vector: 60e12, Memory: 4e12, In: 55e9, Out: 55e9, Launch: 4 * time.Microsecond, Latency: 8 * time.Microsecond}

// shape11B is the Llama shape of 1.1 billion params.
const shape11B = `{"model_type":"llama","vocab_size":32000,"hidden_size":2048,"num_hidden_layers":22,
"num_attention_heads":32,"num_key_value_heads":4,"intermediate_size":5632,"rms_norm_eps":1e-5,
"tie_word_embeddings":false,"max_position_embeddings":2048}`

func siteOn(d *Device, budget int64) planner.Site {
	return planner.Site{Device: d.Info().Name, Budget: budget, HostBudget: 110 << 30, Alignment: planner.Alignment,
		Rates: rates, Kernels: d, HostPinned: true}
}

// started plans a model and starts it with random weights.
func started(b *testing.B, d *Device, m *spec.Model, g planner.Goal, budget int64, choose func(slabs, blocks int) planner.Choice) (*plan.Plan, *executor.Executor) {
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
	if err := e.Prepare(); err != nil {
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
	card, err := d.Alloc(size)
	if err != nil {
		b.Fatal(err)
	}
	defer card.Free()
	q, err := d.Queue("in")
	if err != nil {
		b.Fatal(err)
	}
	defer q.Close()
	best := 0.0
	for range 4 {
		start := time.Now()
		if err := q.Copy(device.Buffer{Memory: card, Bytes: size}, device.Buffer{Memory: host, Bytes: size}); err != nil {
			b.Fatal(err)
		}
		if err := q.Sync(); err != nil {
			b.Fatal(err)
		}
		best = max(best, size/time.Since(start).Seconds())
	}
	return best
}

// Forward of the Llama-3-8B shape with all weights in host memory and 4 GiB of the card.
func BenchmarkStreamedForward(b *testing.B) {
	for _, size := range [][2]int64{{1, 512}, {4, 2048}} {
		b.Run(fmt.Sprintf("%dx%d", size[0], size[1]), func(b *testing.B) {
			d := openCard(b, Options{})
			b.Cleanup(func() { d.Close() })
			link := linkRate(b, d)
			config, err := arch.Named("llama-3-8b")
			if err != nil {
				b.Fatal(err)
			}
			m := tiny.Model(b, string(config), graph.Config{Rows: size[0], Seq: size[1], Task: graph.Eval, DType: dtype.BF16})
			begin := time.Now()
			p, e := started(b, d, m, planner.Goal{}, 4<<30, planner.Alike(true, false, planner.KeepAll, 3))
			b.Logf("start %.1f s, arena %d MiB, budget 4096 MiB", time.Since(begin).Seconds(), p.Arenas[0].Bytes>>20)
			fillBatch(b, e, 128256, 1)
			run := func() {
				if err := e.Iterate(context.Background(), executor.Numbers{}); err != nil {
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

// A training iteration of the 1.1B shape with everything on the card.
func BenchmarkResidentTraining(b *testing.B) {
	for _, level := range []planner.Level{planner.KeepAll, planner.KeepNone} {
		b.Run(map[planner.Level]string{planner.KeepAll: "kept", planner.KeepNone: "recomputed"}[level], func(b *testing.B) {
			d := openCard(b, Options{})
			b.Cleanup(func() { d.Close() })
			m := tiny.Model(b, shape11B, graph.Config{Rows: 4, Seq: 2048, Task: graph.Train, DType: dtype.BF16})
			goal := tiny.AdamW(1, false)
			goal.Master = true
			p, e := started(b, d, m, goal, 100<<30, planner.Alike(false, false, level, 1))
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
// weights and state in host memory and 24 GiB of the card.
func BenchmarkStreamedTraining(b *testing.B) {
	d := openCard(b, Options{})
	b.Cleanup(func() { d.Close() })
	link := linkRate(b, d)
	config, err := arch.Named("llama-3-8b")
	if err != nil {
		b.Fatal(err)
	}
	short := strings.Replace(string(config), `"num_hidden_layers": 32`, `"num_hidden_layers": 8`, 1)
	m := tiny.Model(b, short, graph.Config{Rows: 1, Seq: 4096, Task: graph.Train, DType: dtype.BF16})
	var params float64
	for _, p := range m.Params {
		params += float64(p.Type.Shape.Elements())
	}
	goal := tiny.AdamW(8, false)
	goal.Master = true
	begin := time.Now()
	p, e := started(b, d, m, goal, 24<<30, planner.Alike(true, true, planner.KeepNone, 2))
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

// Every kind of call of that iteration by itself, as a share of the bound of its cost.
func BenchmarkCalls(b *testing.B) {
	m := tiny.Model(b, shape11B, graph.Config{Rows: 4, Seq: 2048, Task: graph.Train, DType: dtype.BF16})
	d := openCard(b, Options{})
	defer d.Close()
	p, err := planner.Build(m, tiny.AdamW(1, false), siteOn(d, 100<<30), planner.Alike(false, false, planner.KeepAll, 1))
	if err != nil {
		b.Fatal(err)
	}
	vector := op.Type{DType: dtype.F32, Shape: shape.Of(1 << 27)}
	half := op.Type{DType: dtype.BF16, Shape: vector.Shape}
	adam, err := op.Make(op.Adam, op.Attr{Decoupled: true, To: dtype.BF16}, vector, half, vector, vector, op.Type{DType: dtype.F32, Shape: shape.Of(2)})
	if err != nil {
		b.Fatal(err)
	}
	times, order := map[string]int{adam.String(): 8}, []op.Call{adam} // a gigabyte of params
	for _, step := range p.Steps {
		if step.Verb != plan.Run {
			continue
		}
		g := p.Programs[step.Program].Graph
		for _, n := range g.Nodes {
			c := g.Call(n)
			if times[c.String()]++; times[c.String()] == 1 {
				order = append(order, c)
			}
		}
	}
	for _, c := range order {
		b.Run(c.String(), func(b *testing.B) { benchCall(b, d, c, times[c.String()]) })
	}
}

// benchCall times launches of a call on noise, by events. An iteration has so many of
// them.
func benchCall(b *testing.B, d *Device, c op.Call, times int) {
	k, err := d.Kernel(c)
	if err != nil {
		b.Fatal(err)
	}
	var size int64
	l := &device.Launch{Args: &op.Args{}}
	types := append(c.In[:len(c.In):len(c.In)], c.Out...)
	offsets := make([]int64, len(types))
	for i, t := range types {
		offsets[i] = size
		size += blocked(t.Bytes())
	}
	mem, err := d.Alloc(size + k.Workspace())
	if err != nil {
		b.Fatal(err)
	}
	defer mem.Free()
	q, err := d.Queue("compute")
	if err != nil {
		b.Fatal(err)
	}
	defer q.Close()
	if err := upload(d, q, mem, types, offsets); err != nil {
		b.Fatal(err)
	}
	for i, t := range types {
		l.Buffers = append(l.Buffers, device.Buffer{Memory: mem, Offset: offsets[i], Bytes: t.Bytes()})
	}
	l.Workspace = device.Buffer{Memory: mem, Offset: size, Bytes: k.Workspace()}
	from, _ := d.Event()
	to, _ := d.Event()
	run := func(times int) time.Duration {
		q.Record(from)
		for range times {
			if err := q.Launch(k, l); err != nil {
				b.Fatal(err)
			}
		}
		q.Record(to)
		if err := q.Sync(); err != nil {
			b.Fatal(err)
		}
		return to.Time() - from.Time()
	}
	run(3)
	var took time.Duration
	for b.Loop() {
		took = run(10) / 10
	}
	bound := rates
	bound.Launch = 0
	b.ReportMetric(took.Seconds()*1e6, "µs/launch")
	b.ReportMetric(took.Seconds()*1e3*float64(times), "ms/iteration")
	b.ReportMetric(float64(bound.Time(c))/float64(took), "of-bound")
}

// upload fills operands: real numbers with noise, integers with ones below 1000.
func upload(d *Device, q device.Queue, mem device.Memory, types []op.Type, offsets []int64) error {
	const step = 64 << 20
	host, err := d.HostAlloc(step)
	if err != nil {
		return err
	}
	defer host.Free()
	for i, t := range types {
		for at := int64(0); at < t.Bytes(); at += step {
			n := min(step, t.Bytes()-at)
			for i := int64(0); i+4 <= n; i += 4 {
				binary.LittleEndian.PutUint32(host.Host()[i:], uint32(op.Key(uint64(i))%1000))
			}
			if t.DType.Float() && t.DType != dtype.F64 {
				if err := noise(t.DType)(0, host.Host()[:n]); err != nil {
					return err
				}
			}
			if err := q.Copy(device.Buffer{Memory: mem, Offset: offsets[i] + at, Bytes: n}, device.Buffer{Memory: host, Bytes: n}); err != nil {
				return err
			}
			if err := q.Sync(); err != nil {
				return err
			}
		}
	}
	return nil
}

func BenchmarkLaunch(b *testing.B) {
	d := openCard(b, Options{})
	defer d.Close()
	c, err := op.Make(op.Scale, op.Attr{Scale: 2}, op.Type{DType: dtype.F32, Shape: shape.Of(64)})
	if err != nil {
		b.Fatal(err)
	}
	k, err := d.Kernel(c)
	if err != nil {
		b.Fatal(err)
	}
	mem, err := d.Alloc(1024)
	if err != nil {
		b.Fatal(err)
	}
	defer mem.Free()
	q, err := d.Queue("compute")
	if err != nil {
		b.Fatal(err)
	}
	defer q.Close()
	l := &device.Launch{Buffers: []device.Buffer{{Memory: mem, Bytes: 256}, {Memory: mem, Offset: 512, Bytes: 256}}}
	b.ReportAllocs()
	for b.Loop() {
		if err := q.Launch(k, l); err != nil {
			b.Fatal(err)
		}
	}
	if err := q.Sync(); err != nil {
		b.Fatal(err)
	}
}
