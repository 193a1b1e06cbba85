package cuda

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"spillway/autograd"
	"spillway/device"
	"spillway/dtype"
	"spillway/graph"
	"spillway/nn"
	"spillway/op"
	"spillway/quant"
	"spillway/shape"
)

// stacked is a program ready to be launched node by node, with memory for every value.
type stacked struct {
	kernels  []device.Kernel
	launches []*device.Launch
}

// stack prepares a program on noise.
func stack(b *testing.B, d *Device, q device.Queue, p *graph.Program) *stacked {
	b.Helper()
	at := map[graph.Value]device.Buffer{}
	memory := func(v graph.Value) device.Buffer {
		if held, ok := at[v]; ok {
			return held
		}
		t := p.Type(v)
		m, err := d.Alloc(t.Bytes())
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { m.Free() })
		at[v] = device.Buffer{Memory: m, Bytes: t.Bytes()}
		if err := filled(d, q, at[v], noiseIn(t)); err != nil {
			b.Fatal(err)
		}
		return at[v]
	}
	s := &stacked{}
	for _, n := range p.Nodes {
		k, err := d.Kernel(p.Call(n))
		if err != nil {
			b.Fatal(err)
		}
		l := &device.Launch{Args: &op.Args{}}
		for _, v := range append(n.In[:len(n.In):len(n.In)], n.Out...) {
			l.Buffers = append(l.Buffers, memory(v))
		}
		if k.Workspace() > 0 {
			m, err := d.Alloc(k.Workspace())
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { m.Free() })
			l.Workspace = device.Buffer{Memory: m, Bytes: k.Workspace()}
		}
		s.kernels, s.launches = append(s.kernels, k), append(s.launches, l)
	}
	return s
}

func (s *stacked) run(q device.Queue) error {
	for i, k := range s.kernels {
		if err := q.Launch(k, s.launches[i]); err != nil {
			return err
		}
	}
	return nil
}

// matmul2048 is a frozen layer, with an adapter if it has a rank, forward and backward.
func matmul2048(b *testing.B, in, out, rank int64, storage dtype.Type) *graph.Program {
	b.Helper()
	builder := graph.NewBuilder("product", graph.Config{MicroBatchSize: 1, Seq: 2048, DType: dtype.BF16, Task: graph.Train})
	layer := nn.NewLinear(in, out)
	layer.Bias, layer.Weight.Name, layer.Weight.Frozen, layer.Weight.Storage = nil, "w", true, storage
	if rank > 0 {
		layer.Adapter = &nn.Adapter{A: nn.NewParam(nn.Uniform(0.01), rank, in), B: nn.NewParam(nn.Uniform(0.01), out, rank), Scale: 2}
		layer.Adapter.A.Name, layer.Adapter.B.Name = "a", "b"
	}
	x := builder.Input(op.Type{DType: dtype.BF16, Shape: shape.Shape{1, 2048, in}})
	p, err := builder.Program(graph.Carry, layer.Forward(builder, x))
	if err != nil {
		b.Fatal(err)
	}
	j, err := autograd.Differentiate(p, autograd.Options{InputGrad: true})
	if err != nil {
		b.Fatal(err)
	}
	return j.Program
}

// What adapters of rank 16 add to the time of frozen matmuls, forward and backward, for
// 2048 tokens: matmuls by themselves, and all of a layer of a 70B Llama. Both are timed in
// turn, since a GPU that works long runs slower; the middle of the ratios counts.
func BenchmarkAdapters(b *testing.B) {
	type sizes struct{ in, out int64 }
	layer := []sizes{{8192, 8192}, {8192, 1024}, {8192, 1024}, {8192, 8192}, {8192, 28672}, {8192, 28672}, {28672, 8192}}
	for _, c := range []struct {
		name    string
		matmuls []sizes
		storage dtype.Type
	}{
		{"8192x8192", layer[:1], dtype.Invalid},
		{"28672x8192", layer[4:5], dtype.Invalid},
		{"8192x28672", layer[6:], dtype.Invalid},
		{"layer", layer, dtype.Invalid},
		{"layer nf4", layer, quant.NF4},
	} {
		b.Run(c.name, func(b *testing.B) {
			d := openGPU(b, Options{})
			b.Cleanup(func() { d.Close() })
			q, err := d.Queue("compute")
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { q.Close() })
			var frozen, adapted []*stacked
			for _, p := range c.matmuls {
				frozen = append(frozen, stack(b, d, q, matmul2048(b, p.in, p.out, 0, c.storage)))
				adapted = append(adapted, stack(b, d, q, matmul2048(b, p.in, p.out, 16, c.storage)))
			}
			var plain, with time.Duration
			for b.Loop() {
				plain, with = alternating(b, d, q, frozen, adapted)
			}
			b.ReportMetric(plain.Seconds()*1e6, "µs-frozen")
			b.ReportMetric(with.Seconds()*1e6, "µs-adapted")
			b.ReportMetric(with.Seconds()/plain.Seconds()-1, "overhead")
			if len(c.matmuls) == 1 {
				adapted[0].log(b, d, q)
			}
		})
	}
}

// alternating times both in turn and gives the pair with the middle ratio.
func alternating(b *testing.B, d *Device, q device.Queue, frozen, adapted []*stacked) (plain, with time.Duration) {
	b.Helper()
	all := func(list []*stacked) func() error {
		return func() error {
			for _, s := range list {
				if err := s.run(q); err != nil {
					return err
				}
			}
			return nil
		}
	}
	var pairs [][2]time.Duration
	for range 31 {
		pairs = append(pairs, [2]time.Duration{once(b, d, q, all(frozen)), once(b, d, q, all(adapted))})
	}
	slices.SortFunc(pairs, func(x, y [2]time.Duration) int {
		return cmp.Compare(x[1].Seconds()/x[0].Seconds(), y[1].Seconds()/y[0].Seconds())
	})
	middle := pairs[len(pairs)/2]
	return middle[0], middle[1]
}

// log shows the time of each call.
func (s *stacked) log(b *testing.B, d *Device, q device.Queue) {
	b.Helper()
	for i, k := range s.kernels {
		took := timed(b, d, q, func() error { return q.Launch(k, s.launches[i]) })
		b.Logf("%7.1f µs  %v", took.Seconds()*1e6, k.(*preparedKernel).call)
	}
}
