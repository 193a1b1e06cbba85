package cuda

import (
	"errors"
	"slices"
	"testing"

	"spillway/device"
	"spillway/dtype"
	"spillway/executor"
	"spillway/graph"
	"spillway/internal/tiny"
	"spillway/plan"
	"spillway/planner"
	"spillway/planner/strategy"
	"spillway/weights"
)

// The next batch comes to the GPU while an iteration runs, captured as a graph or not, resident or streamed, in one
// micro-batch or two: the losses have the bits of batches that come when their iteration begins.
func TestNextBatchOnGPU(t *testing.T) {
	gpu := openGPU(t, Options{})
	defer gpu.Close()
	m := tiny.Model(t, tiny.Llama, graph.Config{MicroBatchSize: 2, Seq: 16, Task: graph.Train, DType: dtype.BF16})
	train := func(micros int, streams, next, captured, ahead bool) (losses []float64) {
		site, goal := tiny.Site(64<<20), tiny.AdamW(micros, true)
		site.Kernels, goal.Master = gpu, true
		p, err := planner.Build(m, goal, site, func(slabs, blocks int) strategy.Choice {
			c := strategy.Uniform(streams, streams, strategy.SaveNone, 2)(slabs, blocks)
			c.NextBatch = next
			return c
		})
		if err != nil {
			t.Fatal(err)
		}
		if captured && !p.Captured && p.CanCapture() {
			p = p.Capture()
		}
		if err := plan.Verify(p); err != nil {
			t.Fatal(err)
		}
		e, err := executor.New(p, []device.Device{gpu})
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
		fillBatch(t, e, 61, 0)
		for i := range uint64(8) {
			meanwhile := func() {}
			if ahead {
				meanwhile = func() {
					fillBatch(t, e, 61, i+1)
					if err := e.Upload(); err != nil {
						t.Error(err)
					}
				}
			}
			losses = append(losses, iterateMeanwhile(t, e, i, meanwhile))
			if !ahead {
				fillBatch(t, e, 61, i+1)
			}
		}
		return losses
	}
	for _, micros := range []int{1, 2} {
		for _, streams := range []bool{false, true} {
			want := train(micros, streams, false, false, false)
			for _, captured := range []bool{false, true} {
				for _, ahead := range []bool{false, true} {
					if got := train(micros, streams, true, captured, ahead); !slices.Equal(got, want) {
						t.Errorf("%d micro-batches, streamed %v, captured %v, during the iteration before %v: losses %v, want %v", micros, streams, captured, ahead, got, want)
					}
				}
			}
		}
	}
}
