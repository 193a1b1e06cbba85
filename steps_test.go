package spillway_test

import (
	"errors"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"spillway"
	"spillway/nn"
	"spillway/op"
)

// wideNet reads many numbers of each sample, so that copies of batches take long on the machine of wideConfig.
func wideNet() nn.Model {
	s := nn.NewSequential(nn.NewLinear(wideInput, 8), nn.ReLU, nn.Dropout(0.2), nn.NewLinear(8, 3))
	s.Input, s.Loss = []int64{wideInput}, nn.CrossEntropy
	return s
}

const wideInput = 4096

func wideConfig(t testing.TB) spillway.Config {
	return spillway.Config{Options: spillway.Options{Machine: parse(t, "gpu:1GiB@1GB/s,host:4GiB")}, Devices: []string{"cpu:threads=1"}, Seed: 3}
}

// wideBatches are batches of the sizes given.
func wideBatches(sizes ...int64) (list []spillway.Batch) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, n := range sizes {
		list = append(list, spillway.Batch{"input": normal(r, n, wideInput), "targets": idsBelow(r, 3, n)})
	}
	return list
}

// sequence gives batches, and remembers how many it was asked for.
func sequence(list []spillway.Batch, asked *int) iter.Seq2[spillway.Batch, error] {
	return func(yield func(spillway.Batch, error) bool) {
		for _, b := range list {
			if *asked++; !yield(b, nil) {
				return
			}
		}
	}
}

// Steps has the bits of Step, with batches that come during the step before, of other sizes in between, and with evaluations,
// steps and a state that is saved and loaded between them.
func TestStepsAreSteps(t *testing.T) {
	list := wideBatches(80, 80, 80, 64, 80, 80, 80)
	extra := wideBatches(80)[0]
	between := map[int]func(w *spillway.Wrapped) error{
		1: func(w *spillway.Wrapped) error { _, err := w.Evaluate(extra); return err },
		4: func(w *spillway.Wrapped) error { _, err := w.Step(extra); return err },
		5: func(w *spillway.Wrapped) error {
			s, err := w.OptimizerState()
			return errors.Join(err, w.LoadOptimizerState(s))
		},
	}
	train := func(single bool, steps func(w *spillway.Wrapped, each func(float64, error))) ([]float64, spillway.StateDict) {
		c := wideConfig(t)
		c.Bounds.SingleBatch = single
		w := wrap(t, wideNet(), c)
		var losses []float64
		steps(w, func(loss float64, err error) {
			if err != nil {
				t.Fatal(err)
			}
			if between := between[len(losses)]; between != nil {
				if err := between(w); err != nil {
					t.Fatal(err)
				}
			}
			losses = append(losses, loss)
		})
		return losses, stateDict(t, w)
	}
	plain := func(w *spillway.Wrapped, each func(float64, error)) {
		for _, b := range list {
			each(w.Step(b))
		}
	}
	var asked []int
	ahead := func(w *spillway.Wrapped, each func(float64, error)) {
		n := 0
		asked = nil
		for loss, err := range w.Steps(sequence(list, &n)) {
			asked = append(asked, n)
			each(loss, err)
		}
	}
	late := func(w *spillway.Wrapped, each func(float64, error)) { // planned for single batches first
		each(w.Step(list[0]))
		n := 0
		for loss, err := range w.Steps(sequence(list[1:], &n)) {
			each(loss, err)
		}
		if !w.Explain().Input.Prefetched {
			t.Error("not planned again to prefetch batches")
		}
	}
	want, dict := train(true, plain)
	for name, steps := range map[string]func(*spillway.Wrapped, func(float64, error)){"Step": plain, "Steps": ahead, "Steps behind a Step": late} {
		if got, weights := train(name == "Step", steps); !slices.Equal(got, want) || !sameDict(weights, dict) {
			t.Errorf("%s: losses %v, want %v", name, got, want)
		}
	}
	for _, single := range []bool{false, true} { // also where the device has no memory for a second batch
		if got, weights := train(single, ahead); !slices.Equal(got, want) || !sameDict(weights, dict) {
			t.Errorf("for single batches %v: losses %v, want %v", single, got, want)
		}
		if want := []int{2, 3, 4, 5, 6, 7, 7}; !slices.Equal(asked, want) {
			t.Errorf("for single batches %v they had been asked for when steps ended: %v, want %v", single, asked, want)
		}
	}
}

// What Steps prepares is on the device: the plan has memory for a second batch, and says so.
func TestStepsSendTheNextBatch(t *testing.T) {
	c := wideConfig(t)
	peak := map[bool]int64{}
	for _, single := range []bool{true, false} {
		c.Bounds.SingleBatch = single
		w := wrap(t, wideNet(), c)
		n := 0
		for _, err := range w.Steps(sequence(wideBatches(80, 80, 80), &n)) {
			if err != nil {
				t.Fatal(err)
			}
		}
		d := w.MemoryStats().Devices[0]
		peak[single] = d.Predicted
		if d.Peak != d.Predicted {
			t.Errorf("the plan takes %d bytes of the device, %d were measured", d.Predicted, d.Peak)
		}
		in := w.Explain().Input
		if in.Prefetched == single || in.Bytes < 80*4*wideInput || in.Seconds <= 0 || strings.Contains(w.Explain().String(), "during the step before") == single {
			t.Errorf("with a single batch %v: %+v\n%v", single, in, w.Explain())
		}
	}
	if more := peak[false] - peak[true]; more < 80*4*wideInput || more > 80*4*wideInput+4096 {
		t.Errorf("a second batch takes %d bytes, it has %d", more, 80*4*wideInput)
	}
}

// A sequence that fails, or has a batch that does not fit, ends the loop behind the steps before it, and the model can go on. A
// loop that is left drops what was prepared.
func TestStepsEnd(t *testing.T) {
	list := wideBatches(80, 80, 80, 80)
	plain := func(third spillway.Batch) (losses []float64) { // one that Step refuses, or none
		w := wrap(t, wideNet(), wideConfig(t))
		losses = append(step(t, w, list[0], 1), step(t, w, list[1], 1)...)
		if third != nil {
			if _, err := w.Step(third); err == nil {
				t.Fatal("not refused")
			}
		}
		return append(losses, step(t, w, list[3], 1)...)
	}
	broken := errors.New("made up")
	odd := spillway.Batch{"input": list[2]["input"]}
	wrong := spillway.Batch{"input": list[2]["input"], "targets": idsBelow(rand.New(rand.NewPCG(1, 1)), 3, 80)}
	wrong["targets"].Ints[7] = 99
	ignored := spillway.Batch{"input": list[2]["input"], "targets": spillway.Ints(slices.Repeat([]int32{op.IgnoreIndex}, 80), 80)}
	for name, third := range map[string]struct {
		batch spillway.Batch
		err   error
		says  string
	}{"left": {list[2], nil, ""}, "broken": {nil, broken, "made up"}, "a part is missing": {odd, nil, "lacks"}, "a class there is not": {wrong, nil, "holds 99"}, "nothing to learn": {ignored, nil, "nothing to learn"}} {
		w := wrap(t, wideNet(), wideConfig(t))
		var got []float64
		var met error
		for loss, err := range w.Steps(func(yield func(spillway.Batch, error) bool) {
			_ = yield(list[0], nil) && yield(list[1], nil) && yield(third.batch, third.err)
		}) {
			if met = err; err != nil {
				continue
			}
			if got = append(got, loss); len(got) == 2 && name == "left" {
				break
			}
		}
		if (met == nil) != (third.says == "") || met != nil && !strings.Contains(met.Error(), third.says) || third.err != nil && !errors.Is(met, third.err) {
			t.Errorf("%s: %v", name, met)
		}
		refused := third.batch
		if name == "left" {
			refused = nil
		}
		if want := plain(refused); !slices.Equal(append(got, step(t, w, list[3], 1)...), want) {
			t.Errorf("%s: losses %v, want %v", name, got, want)
		}
	}
}
