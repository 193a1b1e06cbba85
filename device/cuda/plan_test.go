package cuda

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"spillway/device"
	"spillway/device/cpu"
	"spillway/dtype"
	"spillway/executor"
	"spillway/graph"
	"spillway/internal/tiny"
	"spillway/op"
	"spillway/optim"
	"spillway/planner"
	"spillway/planner/strategy"
	"spillway/weights"
)

// tinyRun trains a tiny model with a plan of a choice and returns the losses.
func tinyRun(t *testing.T, dev device.Device, precision dtype.Type, choose func(slabs, blocks int) strategy.Choice) []float64 {
	t.Helper()
	m := tiny.Model(t, tiny.Llama, graph.Config{MicroBatchSize: 2, Seq: 16, Task: graph.Train, DType: precision})
	site, goal := tiny.Site(64<<20), tiny.AdamW(2, true)
	site.Kernels, goal.Master = dev, precision != dtype.F32
	p, err := planner.Build(m, goal, site, choose)
	if err != nil {
		t.Fatal(err)
	}
	e, err := executor.New(p, []device.Device{dev})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}()
	source, err := weights.Random(m.Params, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(e.WriteConstants(), weights.Load(e, source)); err != nil {
		t.Fatal(err)
	}
	var losses []float64
	for i := range 8 {
		fillBatch(t, e, 61, uint64(i))
		losses = append(losses, iterateOnce(t, e, uint64(i)))
	}
	return losses
}

// iterateOnce runs an AdamW iteration and gives its loss.
func iterateOnce(t testing.TB, e *executor.Executor, i uint64) float64 {
	t.Helper()
	return iterateMeanwhile(t, e, i, nil)
}

// iterateMeanwhile does something while the GPU works.
func iterateMeanwhile(t testing.TB, e *executor.Executor, i uint64, do func()) float64 {
	t.Helper()
	n := executor.IterationArgs{Seed: 1, Iteration: i, MaxNorm: 1, Meanwhile: do}
	step := optim.AdamStep{Rate: 1e-3, Decay: 0.1, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Decoupled: true,
		Bias1: float32(1 - math.Pow(0.9, float64(i+1))), Bias2: float32(math.Sqrt(1 - math.Pow(0.95, float64(i+1))))}
	n.Optimizer = step.Scalars()
	step.Decay = 0
	n.NoDecay = step.Scalars()
	if err := e.Iterate(context.Background(), n); err != nil {
		t.Fatal(err)
	}
	return e.Loss()
}

// fillBatch writes made-up tokens, positions and the rest of a batch.
func fillBatch(t testing.TB, e *executor.Executor, vocabulary int, seed uint64) {
	t.Helper()
	p, tokens := e.Plan(), int64(1)
	for _, part := range p.Batch {
		if part.Name == "tokens" {
			tokens = part.Type.Shape.Elements()
		}
	}
	for micro := range p.MicroBatches {
		for _, part := range p.Batch {
			raw, err := e.BatchTensor(micro, part.Name)
			if err != nil {
				t.Fatal(err)
			}
			last := int(part.Type.Shape.Last())
			for i := range len(raw) / 4 {
				word := uint32(op.Key(seed, uint64(micro), uint64(i)) % uint64(vocabulary))
				switch {
				case part.Type.DType == dtype.F32: // the scale of the loss
					word = math.Float32bits(1 / float32(int64(p.MicroBatches)*tokens))
				case part.Name == "positions":
					word = uint32(i % last)
				}
				binary.LittleEndian.PutUint32(raw[4*i:], word)
			}
		}
	}
}

// Plans that keep everything, recompute, or stream from the host give the same bits on
// the GPU, and the losses of the CPU.
func TestPlansAgree(t *testing.T) {
	gpu := openGPU(t, Options{})
	defer gpu.Close()
	host := cpu.Open(cpu.Options{Threads: 2})
	defer host.Close()
	right := tinyRun(t, host, dtype.F32, strategy.Uniform(false, false, strategy.SaveAll, 1))
	for _, precision := range []dtype.Type{dtype.F32, dtype.BF16} {
		resident := tinyRun(t, gpu, precision, strategy.Uniform(false, false, strategy.SaveAll, 1))
		bound := 1e-4
		if precision == dtype.BF16 {
			bound = 2e-2
		}
		for i, loss := range resident {
			if off := math.Abs(loss-right[i]) / right[i]; !(off < bound) {
				t.Errorf("%v: loss %d is %v, on the CPU %v", precision, i, loss, right[i])
			}
		}
		if !(resident[7] < resident[0]) {
			t.Errorf("%v: losses %v do not fall", precision, resident)
		}
		for name, choose := range map[string]func(slabs, blocks int) strategy.Choice{
			"recomputed": strategy.Uniform(false, false, strategy.SaveNone, 1),
			"attention":  strategy.Uniform(false, false, strategy.SaveAttention, 1),
			"streamed":   strategy.Uniform(true, true, strategy.SaveNone, 2),
		} {
			for i, loss := range tinyRun(t, gpu, precision, choose) {
				if loss != resident[i] {
					t.Errorf("%v: loss %d is %v %s, %v resident", precision, i, loss, name, resident[i])
				}
			}
		}
	}
}
