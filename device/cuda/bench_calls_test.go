package cuda

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"spillway/arch/vision"
	"spillway/device"
	"spillway/device/sim"
	"spillway/dtype"
	"spillway/graph"
	"spillway/internal/tiny"
	"spillway/nn"
	"spillway/op"
	"spillway/optim"
	"spillway/plan"
	"spillway/planner"
	"spillway/planner/strategy"
	"spillway/shape"
	"spillway/spec"
)

// callShapes are the training runs whose calls are timed one by one.
var callShapes = []struct {
	name, config string
	rows, seq    int64
	net          func() nn.Model
}{
	{"1.1B", shape11B, 4, 2048, nil},
	{"8B", shape8B, 1, 4096, nil},
	{"ViT-B", "", 128, 1, func() nn.Model { return vision.NewViTB16() }},
}

// shape8B is a layer of the Llama shape of 8 billion params.
const shape8B = `{"model_type":"llama","vocab_size":128256,"hidden_size":4096,"num_hidden_layers":1,
"num_attention_heads":32,"num_key_value_heads":8,"intermediate_size":14336,"rms_norm_eps":1e-5,
"tie_word_embeddings":false,"max_position_embeddings":4096}`

// Every kind of call of an iteration by itself, as a share of roofline of its cost.
func BenchmarkCalls(b *testing.B) {
	for _, s := range callShapes {
		b.Run(s.name, func(b *testing.B) {
			d := openGPU(b, Options{})
			defer d.Close()
			c := graph.Config{MicroBatchSize: s.rows, Seq: s.seq, Task: graph.Train, DType: dtype.BF16}
			var m *spec.Model
			if s.net == nil {
				m = tiny.Model(b, s.config, c)
			} else {
				var err error
				if m, err = spec.Trace(s.name, "own", s.net(), c); err != nil {
					b.Fatal(err)
				}
			}
			order, times := callsOf(b, d, m)
			for _, c := range order {
				b.Run(c.String(), func(b *testing.B) { benchCall(b, d, c, times[c.String()]) })
			}
		})
	}
}

// callsOf lists the calls of a training iteration that keeps everything, and how often
// each occurs.
func callsOf(b *testing.B, d *Device, m *spec.Model) (order []op.Call, times map[string]int) {
	p, err := planner.Build(m, tiny.AdamW(1, false), siteOn(d, 100<<30), strategy.Uniform(false, false, strategy.SaveAll, 1))
	if err != nil {
		b.Fatal(err)
	}
	vector := op.Type{DType: dtype.F32, Shape: shape.Of(1 << 27)}
	half := op.Type{DType: dtype.BF16, Shape: vector.Shape}
	adam, err := op.Make(optim.Adam, op.Attr{To: dtype.BF16}, vector, half, vector, vector, op.Type{DType: dtype.F32, Shape: shape.Of(2)})
	if err != nil {
		b.Fatal(err)
	}
	times, order = map[string]int{adam.String(): 8}, []op.Call{adam} // a gigabyte of params
	for _, step := range p.Instructions {
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
	return order, times
}

// benchCall times launches of a call on noise, by events. An iteration has so many of
// them.
func benchCall(b *testing.B, d *Device, c op.Call, times int) {
	k, err := d.Kernel(c)
	if err != nil {
		b.Fatal(err)
	}
	benchKernel(b, d, c, times, k)
}

// timeCall is what a launch of a call takes, by events.
func timeCall(b *testing.B, d *Device, c op.Call) time.Duration {
	k, err := d.Kernel(c)
	if err != nil {
		b.Fatal(err)
	}
	run, end := launcher(b, d, c, k)
	defer end()
	run(3)
	return run(10) / 10
}

// benchKernel times a kernel of a call.
func benchKernel(b *testing.B, d *Device, c op.Call, times int, k device.Kernel) {
	run, end := launcher(b, d, c, k)
	defer end()
	run(3)
	var took time.Duration
	for b.Loop() {
		took = run(10) / 10
	}
	bound := rates
	bound.Launch = 0
	b.ReportMetric(took.Seconds()*1e6, "µs/launch")
	b.ReportMetric(took.Seconds()*1e3*float64(times), "ms/iteration")
	b.ReportMetric(float64(sim.NewTiming(bound, dtype.BF16).Time(c))/float64(took), "of-bound")
}

// launcher gives a function that launches a kernel of a call so many times, on noise, and says how long that
// took.
func launcher(b *testing.B, d *Device, c op.Call, k device.Kernel) (run func(times int) time.Duration, end func()) {
	var size int64
	l := &device.Launch{Args: &op.Args{}}
	types := append(c.In[:len(c.In):len(c.In)], c.Out...)
	offsets := make([]int64, len(types))
	for i, t := range types {
		offsets[i] = size
		size += aligned(t.Bytes())
	}
	mem, err := d.Alloc(size + k.Workspace())
	if err != nil {
		b.Fatal(err)
	}
	q, err := d.Queue("compute")
	if err != nil {
		b.Fatal(err)
	}
	ids := func(i int64) uint32 { return uint32(op.Key(uint64(i)) % 1000) }
	if c.Attr.Segments {
		ids = func(i int64) uint32 { return uint32(i / 512) } // documents
	}
	if err := upload(d, q, mem, types, offsets, ids); err != nil {
		b.Fatal(err)
	}
	for i, t := range types {
		l.Buffers = append(l.Buffers, device.Buffer{Memory: mem, Offset: offsets[i], Bytes: t.Bytes()})
	}
	l.Workspace = device.Buffer{Memory: mem, Offset: size, Bytes: k.Workspace()}
	from, _ := d.Event()
	to, _ := d.Event()
	run = func(times int) time.Duration {
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
	return run, func() { q.Close(); mem.Free() }
}

// upload fills operands: real numbers with noise, integers by their position.
func upload(d *Device, q device.Queue, mem device.Memory, types []op.Type, offsets []int64, ids func(int64) uint32) error {
	const step = 8 << 20
	host, err := d.HostAlloc(step)
	if err != nil {
		return err
	}
	defer host.Free()
	filled := dtype.Type(0) // noise of a type repeats: making it takes longer than what is timed
	for i, t := range types {
		for at := int64(0); at < t.Bytes(); at += step {
			n := min(step, t.Bytes()-at)
			real := t.DType.Float() && t.DType != dtype.F64
			for i := int64(0); i+4 <= n && !real; i += 4 {
				binary.LittleEndian.PutUint32(host.Host()[i:], ids(i/4))
			}
			if real && t.DType != filled {
				if err := noise(t.DType)(0, host.Host()); err != nil {
					return err
				}
			}
			if filled = 0; real {
				filled = t.DType
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

// Attention over the patches of an image by cuDNN and by our kernels, and its gradients.
func BenchmarkShortAttention(b *testing.B) {
	d := openGPU(b, Options{})
	defer d.Close()
	c := attentionCall(b, dtype.BF16, 128, 197, 64, op.Attr{Heads: 12, KVHeads: 12})
	lse := op.Type{DType: dtype.F32, Shape: shape.Of(128, 12, 197)}
	grad, err := op.Make(op.AttentionGrad, c.Attr, c.In[0], c.In[1], c.In[2], c.In[0], lse, c.In[0])
	if err != nil {
		b.Fatal(err)
	}
	h, back := headsOf(c, 3), headsOf(grad, 6)
	whole, _ := back.slices()
	for _, s := range []struct {
		name string
		call op.Call
		make func() (program, error)
	}{
		{"cuDNN", c, func() (program, error) { return h.forwardGraph(d) }}, {"Hopper", c, func() (program, error) { return h.forwardHopper(d) }},
		{"cuDNN gradient", grad, func() (program, error) { return back.gradientGraph(d, whole) }}, {"Hopper gradient", grad, func() (program, error) { return back.gradientHopper(d) }},
	} {
		p, err := s.make()
		if err != nil || len(p.actions) == 0 {
			b.Fatalf("%s: %v", s.name, err)
		}
		b.Run(s.name, func(b *testing.B) {
			benchKernel(b, d, s.call, 12, &preparedKernel{device: d, call: s.call, program: p})
		})
	}
}

// Attention by cuDNN, by our kernels, over packed documents, and of f32 with and without
// rounding, as shares of roofline of its cost: documents count as if they saw each other.
func BenchmarkAttention(b *testing.B) {
	llama := op.Attr{Heads: 32, KVHeads: 8, Causal: true}
	packed := llama
	packed.Segments = true
	for _, s := range []struct {
		name    string
		options Options
		byDNN   bool
		call    op.Call
	}{
		{"by cuDNN", Options{}, true, attentionCall(b, dtype.BF16, 1, 4096, 128, llama)},
		{"flash", Options{}, false, attentionCall(b, dtype.BF16, 1, 4096, 128, llama)},
		{"documents", Options{}, false, attentionCall(b, dtype.BF16, 1, 4096, 128, packed)},
		{"f32", Options{}, false, attentionCall(b, dtype.F32, 4, 512, 128, op.Attr{Heads: 16, KVHeads: 16})},
		{"tf32", Options{TF32: true}, false, attentionCall(b, dtype.F32, 4, 512, 128, op.Attr{Heads: 16, KVHeads: 16})},
	} {
		d := openGPU(b, s.options)
		if !s.byDNN {
			d.lib.DNN = nil
		}
		for _, c := range []op.Call{s.call, gradOf(s.call)} {
			b.Run(fmt.Sprintf("%s/%v", s.name, c.Kind), func(b *testing.B) { benchCall(b, d, c, 1) })
		}
		d.Close()
	}
}

func BenchmarkLaunch(b *testing.B) {
	d := openGPU(b, Options{})
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
