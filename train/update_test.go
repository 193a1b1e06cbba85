package train_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"

	"spillway"
	"spillway/data"
	"spillway/executor"
	"spillway/optim"
	"spillway/train"
)

func floats(t *testing.T, e *executor.Executor, tensor executor.Tensor) []float32 {
	t.Helper()
	out := make([]float32, tensor.Type.Shape.Elements())
	err := e.Read(tensor, func(offset int64, chunk []byte) error {
		for i := range len(chunk) / 4 {
			out[int(offset)/4+i] = math.Float32frombits(binary.LittleEndian.Uint32(chunk[4*i:]))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// byHand is the optimizer's plain rule applied to the gradients an executor shows.
type byHand struct {
	c       optim.Config
	limit   float64
	decays  func(string) bool
	weights map[string][]float32
	states  map[string][][]float32
	grads   map[string][]float32
}

// follow applies iteration i, counted from 1, at a rate.
func (h *byHand) follow(t *testing.T, i int, rate float64) {
	t.Helper()
	var sums []float64
	for _, g := range h.grads {
		sums = append(sums, optim.SumSquares(g))
	}
	clip, err := optim.Clip(optim.GlobalNorm(sums...), h.limit)
	if err != nil {
		t.Fatal(err)
	}
	for name, w := range h.weights {
		if h.states[name] == nil {
			for range h.c.States() {
				h.states[name] = append(h.states[name], make([]float32, len(w)))
			}
		}
		args, err := h.c.Scalars(i, rate, h.decays(name))
		if err != nil {
			t.Fatal(err)
		}
		if err := h.c.Update(args, clip, w, h.grads[name], h.states[name]...); err != nil {
			t.Fatal(err)
		}
	}
}

// Whatever the optimizer, the loop does to the weights what its rule says: rates,
// decay, clipping and the count of iterations included.
func TestUpdatesFollowTheirRule(t *testing.T) {
	for _, text := range []string{"adamw:lr=0.01,weight_decay=0.1", "adam:lr=0.01,weight_decay=0.1", "sgd:lr=0.1", "sgd:lr=0.1,weight_decay=0.1,momentum=0.9,dampening=0.1", "sgd:lr=0.1,momentum=0.9,nesterov=true"} {
		for _, limit := range []float64{0, 0.05} {
			t.Run(fmt.Sprintf("%s clip %v", strings.ReplaceAll(text, ",", " "), limit), func(t *testing.T) { followed(t, text, limit) })
		}
	}
}

func followed(t *testing.T, text string, limit float64) {
	c, err := optim.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	job := start(t, plan(t, noDropout, spillway.Options{MicroBatchSize: 2, MicroBatches: 2, Packed: true, Optimizer: c, NoDecay: optim.DefaultNoDecay(), Clip: limit}))
	e := job.Executor()
	decays, err := optim.DefaultNoDecay().Decays(nil)
	if err != nil {
		t.Fatal(err)
	}
	h := byHand{c, limit, decays, map[string][]float32{}, map[string][][]float32{}, map[string][]float32{}}
	for _, w := range e.Weights() {
		h.weights[w.Param.Name] = floats(t, e, w)
	}
	e.OnGradient(func(g executor.Tensor) error {
		h.grads[g.Param.Name] = floats(t, e, g)
		return nil
	})
	schedule := optim.Schedule{Kind: optim.Linear, Warmup: 2, Total: 6}
	run, err := train.New(job, feed(t, data.Config{}), train.Config{Schedule: schedule})
	if err != nil {
		t.Fatal(err)
	}
	var rates float64 // what the weights have moved by, as Adam does
	for i := range 5 {
		steps(t, run, 1)
		h.follow(t, i+1, c.LR*schedule.Factor(i))
		rates += c.LR * schedule.Factor(i)
	}
	for _, w := range e.Weights() {
		want := h.weights[w.Param.Name]
		for i, got := range floats(t, e, w) {
			if math.Abs(float64(got-want[i])) > 1e-6*max(math.Abs(float64(want[i])), rates) {
				t.Fatalf("element %d of %s is %v, by the rule %v", i, w.Param.Name, got, want[i])
			}
		}
	}
}
