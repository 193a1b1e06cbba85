package planner_test

import (
	"fmt"
	"testing"
	"time"

	"spillway/dtype"
	"spillway/graph"
	"spillway/internal/tiny"
	"spillway/nn"
	"spillway/planner"
	"spillway/spec"
)

// The largest preset is planned within 2 s, whatever shares the work.
func BenchmarkPlan405B(b *testing.B) {
	for _, c := range []struct {
		machine string
		micros  int
		task    graph.Task
	}{
		{"gpu:141GiB@55GB/s,host:8000GiB", 1, graph.Train},
		{"gpu:80GiB,host:300GiB,disk:20TiB", 1, graph.Train},
		{"gpu:80GiB,host:8000GiB", 16, graph.Train},
		{"8xgpu:80GiB,host:8000GiB", 16, graph.Train},
		{"8xgpu:80GiB,host:8000GiB", 16, graph.Infer},
	} {
		b.Run(fmt.Sprintf("%s/%d/%s", c.machine, c.micros, c.task), func(b *testing.B) {
			r := named(b, "llama-3-405b", c.machine, 1, 4096, c.task)
			r.Goal.MicroBatches = c.micros
			for b.Loop() {
				begin := time.Now()
				if _, _, err := r.Plan(); err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(time.Since(begin).Seconds()/2, "share-of-2s")
			}
		})
	}
}

// A model of 200,000 tensors is traced and planned within 5 s, whether it fits or not.
func BenchmarkPlan200000Tensors(b *testing.B) {
	const blocks, matmuls = 12_500, 8 // a weight and a bias each
	m := newDeep(blocks, matmuls)
	for _, share := range []int64{20, 3, 1} {
		b.Run(fmt.Sprintf("memory for %d copies", share), func(b *testing.B) {
			for b.Loop() {
				begin := time.Now()
				s, err := spec.Trace("deep", "own", m, graph.Config{MicroBatchSize: 1, Seq: 64, DType: dtype.BF16, Task: graph.Train})
				if err != nil {
					b.Fatal(err)
				}
				var weights int64
				for _, p := range s.Params {
					weights += p.Type.Bytes()
				}
				if _, err := planner.Make(s, tiny.AdamW(1, false), tiny.Site(share*weights)); err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(time.Since(begin).Seconds()/5, "share-of-5s")
			}
		})
	}
}

// towers is a chain of blocks, each a chain of matmuls.
type towers struct {
	Layers [][]*nn.Linear `hf:"layers"`
}

func newDeep(blocks, matmuls int) *towers {
	m := &towers{Layers: make([][]*nn.Linear, blocks)}
	for i := range m.Layers {
		for range matmuls {
			m.Layers[i] = append(m.Layers[i], nn.NewLinear(64, 64))
		}
	}
	return m
}

// Blocks of the model.
func (m *towers) Blocks() (blocks []nn.Block) {
	for i, layer := range m.Layers {
		blocks = append(blocks, nn.Block{Name: fmt.Sprintf("layers.%d", i), Forward: func(b *graph.Builder, in []graph.Value) []graph.Value {
			if i == 0 {
				in = []graph.Value{nn.Input(b, layer[0].Weight.Shape[1])}
			}
			x := in[0]
			for _, l := range layer {
				x = nn.ReLU.Forward(b, l.Forward(b, x))
			}
			if i == len(m.Layers)-1 {
				x = nn.MeanSquare.Forward(b, x)
			}
			return []graph.Value{x}
		}})
	}
	return blocks
}
