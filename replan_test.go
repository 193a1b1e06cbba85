package spillway_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spillway"
	"spillway/device"
	"spillway/device/cpu"
	"spillway/device/sim"
	"spillway/internal/offheap"
	"spillway/optim"
)

// A training run that is planned again and again goes on to the bit, wherever its state
// goes: less memory, another strategy, the disk.
func TestReplanChangesNoBit(t *testing.T) {
	for _, o := range ownModels() {
		t.Run(o.name, func(t *testing.T) {
			c := described(t)
			c.Disk, c.Clip, c.MicroBatches = t.TempDir(), 0.5, 1
			c.Schedule = optim.Schedule{Kind: optim.Cosine, Warmup: 3, Total: 20}
			calm := wrap(t, o.net(), c)
			want := step(t, calm, o.batch, 12)
			peak := calm.MemoryStats().Devices[0].Predicted
			c.Disk = t.TempDir()
			w := wrap(t, o.net(), c)
			got := step(t, w, o.batch, 2)
			strategies := map[string]bool{w.Strategy(): true}
			for _, change := range []func(*spillway.Config){
				func(c *spillway.Config) { c.MaxMemory = fmt.Sprint(peak * 3 / 4) },
				func(c *spillway.Config) { c.Strategy = "cpu-offload" },
				func(c *spillway.Config) { c.Strategy, c.MaxMemory = "disk-offload", "" },
				func(c *spillway.Config) { c.Strategy = "checkpointing" },
				func(c *spillway.Config) { c.Strategy = "" },
			} {
				next := w.Config()
				change(&next)
				if err := w.Replan(next); err != nil {
					t.Fatal(err)
				}
				strategies[w.Strategy()] = true
				got = append(got, step(t, w, o.batch, 2)...)
			}
			if !slices.Equal(got, want) || !sameDict(stateDict(t, w), stateDict(t, calm)) {
				t.Errorf("losses %v, without planning again %v", got, want)
			}
			// A notice for each of five plans, and one that the first of them needs no disk.
			if n := w.Explain().Notices; len(strategies) < 5 || len(n) != 6 || !strings.Contains(n[0], "nothing is stored in") {
				t.Errorf("strategies %v, %d notices: %q", strategies, len(n), n)
			}
		})
	}
}

// A plan that cannot be leaves everything as it was.
func TestReplanRefuses(t *testing.T) {
	o := ownModels()[2]
	calm := wrap(t, o.net(), described(t))
	want := step(t, calm, o.batch, 6)
	w := wrap(t, o.net(), described(t))
	got, strategy := step(t, w, o.batch, 2), w.Strategy()
	for says, change := range map[string]func(*spillway.Config){
		"needs":        func(c *spillway.Config) { c.MaxMemory = "1000" },
		"Optimizer":    func(c *spillway.Config) { c.Optimizer, _ = optim.Parse("sgd") },
		"Seed was":     func(c *spillway.Config) { c.Seed = 8 },
		"Devices was":  func(c *spillway.Config) { c.Devices = []string{"cpu"} },
		"there is one": func(c *spillway.Config) { c.Strategy = "pipeline" },
		"strategy":     func(c *spillway.Config) { c.Strategy = "magic" },
	} {
		c := w.Config()
		change(&c)
		if err := w.Replan(c); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
	if got = append(got, step(t, w, o.batch, 4)...); !slices.Equal(got, want) || w.Strategy() != strategy {
		t.Errorf("%s: losses %v, want %v", w.Strategy(), got, want)
	}
}

// Before anything is planned, and before anything is trained, settings change too.
func TestReplanWithoutTraining(t *testing.T) {
	o := ownModels()[1]
	w := wrap(t, o.net(), described(t))
	c := w.Config()
	c.Strategy = "cpu-offload"
	if err := w.Replan(c); err != nil || w.Strategy() != "" {
		t.Errorf("%s, %v", w.Strategy(), err)
	}
	out := forward(t, w, o.inputs())
	if !strings.HasPrefix(w.Strategy(), "CPU offload") {
		t.Errorf("the strategy is %s", w.Strategy())
	}
	c.Strategy = "standard"
	if err := w.Replan(c); err != nil || w.Strategy() != "standard" {
		t.Errorf("%s, %v", w.Strategy(), err)
	}
	if again := forward(t, w, o.inputs()); !slices.Equal(again.Floats, out.Floats) {
		t.Error("other outputs")
	}
}

// Inference and evaluation between iterations leave a training as it is, on a device
// with room for both and on one without, and the device never holds more than it has.
func TestInferenceNextToTraining(t *testing.T) {
	o := ownModels()[2] // without dropout: evaluation gives the loss of training
	peak, want, dict, _ := standard(t, o, 6)
	for _, room := range []int64{4 * peak, peak} {
		for _, folder := range []string{"", t.TempDir()} {
			c := described(t)
			c.Devices, c.Strategy, c.Disk = []string{fmt.Sprintf("cpu:threads=1,limit=%d", room)}, "standard", folder
			before := offheap.Mapped()
			w, err := spillway.Wrap(o.net(), c)
			if err != nil {
				t.Fatal(err)
			}
			var got []float64
			var parked bool
			for i := range 6 {
				loss, err := w.Evaluate(o.batch)
				if err != nil || loss != want[i] {
					t.Errorf("evaluated to %v, %v; trained on it is %v", loss, err, want[i])
				}
				parked = parked || w.MemoryStats().Parked > 0
				forward(t, w, o.inputs())
				got = append(got, step(t, w, o.batch, 1)...)
			}
			if !slices.Equal(got, want) || !sameDict(stateDict(t, w), dict) {
				t.Errorf("room for %d: losses %v, want %v", room/peak, got, want)
			}
			if d := w.MemoryStats().Devices[0]; parked != (room == peak) || d.Peak > room {
				t.Errorf("room for %d: parked %v, %+v", room/peak, parked, d)
			}
			if err := w.Close(); err != nil || offheap.Mapped() != before {
				t.Errorf("%d bytes left, %v", offheap.Mapped()-before, err)
			}
			if _, err := w.Step(o.batch); err == nil {
				t.Error("a closed model trains")
			}
		}
	}
}

// Inference that goes on next to training sees every update.
func TestInferenceFollowsTraining(t *testing.T) {
	o := ownModels()[2]
	_, _, _, want := standard(t, o, 3)
	w := wrap(t, o.net(), described(t))
	for range 3 {
		forward(t, w, o.inputs())
		step(t, w, o.batch, 1)
	}
	if got := forward(t, w, o.inputs()); !slices.Equal(got.Floats, want.Floats) {
		t.Error("the outputs are not those of the trained weights")
	}
}

// Whatever is done between iterations, in whatever order, changes no bit of them.
func TestAnyUseBetweenIterations(t *testing.T) {
	const steps = 8
	for i, o := range ownModels() {
		peak, want, dict, out := standard(t, o, steps)
		r := rand.New(rand.NewPCG(uint64(i), 9))
		c := described(t)
		c.MicroBatches, c.Disk = 1, t.TempDir()
		c.Devices = []string{fmt.Sprintf("cpu:threads=1,limit=%d", peak*5/4)}
		w := wrap(t, o.net(), c)
		var done []string
		between := []struct {
			name string
			do   func() error
		}{
			{"forward", func() error { _, err := w.Forward(o.inputs()); return err }},
			{"evaluate", func() error { _, err := w.Evaluate(o.batch); return err }},
			{"state", func() error {
				d, err := w.StateDict()
				if err == nil {
					err = w.LoadStateDict(d)
				}
				return err
			}},
			{"save", func() error { return w.Save(filepath.Join(t.TempDir(), "saved")) }},
			{"replan", func() error {
				c := w.Config()
				c.Strategy = []string{"", "standard", "checkpointing", "optimizer-offload", "cpu-offload", "disk-offload"}[r.IntN(6)]
				c.Bounds.Prefetch, c.ProfileInterval = r.IntN(3), r.IntN(3)
				if c.Bounds.SaveBelow, c.Bounds.StayBelow = 0, 0; c.Strategy == "" {
					c.Bounds.SaveBelow, c.Bounds.StayBelow = float64(r.IntN(3))/2, float64(r.IntN(3))/2
				}
				return w.Replan(c)
			}},
		}
		var got []float64
		for len(got) < steps {
			for range r.IntN(4) {
				b := between[r.IntN(len(between))]
				done = append(done, b.name)
				if err := b.do(); err != nil {
					t.Fatalf("%s after %v: %v", o.name, done, err)
				}
			}
			got, done = append(got, step(t, w, o.batch, 1)...), append(done, "step")
		}
		if !slices.Equal(got, want) || !sameDict(stateDict(t, w), dict) || !slices.Equal(forward(t, w, o.inputs()).Floats, out.Floats) {
			t.Errorf("%s after %v: losses %v, want %v", o.name, done, got, want)
		}
	}
}

// Batches of other sizes come and go; the training is the same under every strategy.
func TestSizesMayChange(t *testing.T) {
	o := ownModels()[2]
	short := spillway.Batch{"tokens": spillway.Ints(o.batch["tokens"].Ints[:14], 2, 7), "targets": spillway.Ints(o.batch["targets"].Ints[:14], 2, 7)}
	run := func(strategy string) []float64 {
		c := described(t)
		c.Strategy = strategy
		w := wrap(t, o.net(), c)
		var losses []float64
		for _, b := range []spillway.Batch{o.batch, short, short, o.batch} {
			losses = append(losses, step(t, w, b, 2)...)
		}
		if n := len(w.Explain().Notices); n != 2 {
			t.Errorf("%d notices: %q", n, w.Explain().Notices)
		}
		return losses
	}
	if a, b := run("standard"), run("cpu-offload"); !slices.Equal(a, b) {
		t.Errorf("losses %v and %v", a, b)
	}
}

// A wrapped model, too, starts within what others have left of a device.
func TestWrappedModelsStartWithinWhatThereIs(t *testing.T) {
	o := ownModels()[2]
	peak, want, dict, _ := standard(t, o, 3)
	dev := cpu.Open(cpu.Options{Threads: 1, Limit: peak * 5 / 4})
	other, err := dev.Alloc(peak / 2)
	if err != nil {
		t.Fatal(err)
	}
	c := described(t)
	c.Devices, c.On = nil, []device.Device{dev}
	w, err := spillway.Wrap(o.net(), c)
	if err != nil {
		t.Fatal(err)
	}
	if got := step(t, w, o.batch, 3); !slices.Equal(got, want) || !sameDict(stateDict(t, w), dict) {
		t.Errorf("losses %v, want %v", got, want)
	}
	if notices := w.Explain().Notices; len(notices) != 1 || !strings.Contains(notices[0], "planned again") {
		t.Errorf("%q", notices)
	}
	if d := w.MemoryStats().Devices[0]; d.Peak > d.Limit || d.Allocated != d.Reserved+peak/2 {
		t.Errorf("%+v", d)
	}
	if err := errors.Join(w.Close(), other.Free(), dev.Close()); err != nil {
		t.Error(err)
	}
}

// An iteration that fails leaves undefined weights, and nobody can go on with them.
func TestFaultsEndAWrappedModel(t *testing.T) {
	o := ownModels()[2]
	fault := errors.New("injected")
	c := described(t)
	c.Devices, c.On = nil, []device.Device{sim.NewCapped(openDevice(t), 1<<20, sim.Faults{Launch: 70, Err: fault})}
	w := wrap(t, o.net(), c)
	var met error
	for i := 0; i < 10 && met == nil; i++ {
		_, met = w.Step(o.batch)
	}
	if !errors.Is(met, fault) {
		t.Fatalf("got %v", met)
	}
	if _, err := w.Step(o.batch); err == nil || !strings.Contains(err.Error(), "undefined") || !errors.Is(err, fault) {
		t.Errorf("it goes on: %v", err)
	}
	_, inferred := w.Forward(o.inputs())
	_, read := w.StateDict()
	for doing, err := range map[string]error{"infer": inferred, "read": read, "save": w.Save(t.TempDir()), "replan": w.Replan(w.Config())} {
		if !errors.Is(err, fault) {
			t.Errorf("to %s it is still good: %v", doing, err)
		}
	}
}

// What fails within a pass of a loop leaves undefined weights too, whoever computes the loss; what was refused before does not.
func TestFaultsEndLoops(t *testing.T) {
	o := ownModels()[1]
	fault := errors.New("injected")
	zero := func(out spillway.Tensor) (float64, []float32, error) { return 0, make([]float32, len(out.Floats)), nil }
	for name, begin := range map[string]func(*spillway.Wrapped) (func() error, error){
		"loss of the model": func(w *spillway.Wrapped) (func() error, error) {
			l, err := w.Loop()
			return func() error { _, err := l.Backward(o.batch); return err }, err
		},
		"loss in Go": func(w *spillway.Wrapped) (func() error, error) {
			l, err := w.OutputLoop()
			return func() error { _, err := l.BackwardWith(o.inputs(), zero); return err }, err
		},
	} {
		c := described(t)
		c.Devices, c.On = nil, []device.Device{sim.NewCapped(openDevice(t), 1<<30, sim.Faults{Launch: 900, Err: fault})}
		w := wrap(t, o.net(), c)
		pass, err := begin(w)
		var met error
		for i := 0; i < 100 && err == nil && met == nil; i++ {
			met = pass()
		}
		if err != nil || !errors.Is(met, fault) {
			t.Fatalf("%s: %v, %v", name, err, met)
		}
		if _, err := w.StateDict(); err == nil || !strings.Contains(err.Error(), "undefined") || !errors.Is(err, fault) {
			t.Errorf("%s: it is still good: %v", name, err)
		}
	}
	w := wrap(t, o.net(), described(t))
	l, err := w.OutputLoop()
	if err != nil {
		t.Fatal(err)
	}
	for _, loss := range []func(spillway.Tensor) (float64, []float32, error){
		func(spillway.Tensor) (float64, []float32, error) { return 0, nil, fault },
		func(spillway.Tensor) (float64, []float32, error) { return 0, make([]float32, 3), nil },
	} {
		if _, err := l.BackwardWith(o.inputs(), loss); err == nil {
			t.Error("a loss that failed passed")
		}
	}
	if _, err := l.Backward(o.inputs()); err == nil {
		t.Error("a loss that there is not")
	}
	if _, err := l.Step(); err == nil {
		t.Error("an update without gradients")
	}
	if _, err := l.BackwardWith(o.inputs(), zero); err != nil {
		t.Errorf("after losses that failed: %v", err)
	}
}
