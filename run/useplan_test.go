package run_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"spillway"
	"spillway/device"
	"spillway/op"
	"spillway/optim"
	"spillway/plan"
)

// asked is a device that counts how often it is asked for a kernel, as planning does.
type asked struct {
	device.Device
	kernels int
}

func (a *asked) Kernel(c op.Call) (device.Kernel, error) {
	a.kernels++
	return a.Device.Kernel(c)
}

// A plan that was saved is carried out without a search, and trains to the same bits.
func TestGivenPlansAreUsedWithoutASearch(t *testing.T) {
	model := open(t, configFile(t, tinyLlama(true, 0)))
	dev := &asked{Device: openDevice(t)}
	o := spillway.Options{Task: spillway.Train, MicroBatchSize: 2, MicroBatches: 2, Seq: 12, Packed: true, Machine: parse(t, "cpu:1GiB,host:4GiB"), On: []device.Device{dev}}
	first, err := model.Plan(o)
	if err != nil {
		t.Fatal(err)
	}
	searched := dev.kernels
	var file bytes.Buffer
	if err := first.Plan.Write(&file); err != nil {
		t.Fatal(err)
	}
	want, _, err := trainFor(t, first, 3)
	if err != nil {
		t.Fatal(err)
	}
	saved, err := plan.Read(&file)
	if err != nil {
		t.Fatal(err)
	}
	o.MicroBatchSize, o.MicroBatches, o.Seq = 0, 0, 0 // the plan says them
	dev.kernels = 0
	again, err := model.UsePlan(saved, o)
	if err != nil {
		t.Fatal(err)
	}
	if dev.kernels >= searched { // those of its own programs, not of other candidates
		t.Errorf("using a plan asked the device for %d kernels, a search for %d: it searched", dev.kernels, searched)
	}
	if again.Options.MicroBatchSize != 2 || again.Options.MicroBatches != 2 || again.Options.Seq != 12 {
		t.Errorf("the sizes are %+v, not the plan's", again.Options)
	}
	got, _, err := trainFor(t, again, 3)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("losses %v, want %v (%v)", got, want, err)
	}
}

// A plan is held against the model, the settings and the memory there is.
func TestGivenPlansAreChecked(t *testing.T) {
	model := open(t, configFile(t, tinyLlama(true, 0)))
	o := spillway.Options{Task: spillway.Train, MicroBatchSize: 2, Seq: 12, Machine: parse(t, "cpu:1GiB,host:4GiB"), On: []device.Device{openDevice(t)}}
	job, err := model.Plan(o)
	if err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*spillway.Options){
		"in another type":        func(o *spillway.Options) { o.Task = spillway.LoRA },
		"the plan is to train":   func(o *spillway.Options) { o.Task = spillway.Eval },
		"another optimizer":      func(o *spillway.Options) { o.Clip = 1 },
		"are free: allow as":     func(o *spillway.Options) { o.Budget = 1000 },
		"trains it otherwise":    func(o *spillway.Options) { o.NoDecay = optim.DefaultNoDecay() },
		"neither cpu, gpu for a": func(o *spillway.Options) { o.MaxMemory = "9=1GiB" },
	} {
		other := o
		change(&other)
		if _, err := model.UsePlan(job.Plan, other); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if _, err := open(t, "gpt2").UsePlan(job.Plan, o); err == nil || !strings.Contains(err.Error(), "it is a plan for config, the model is gpt2") {
		t.Errorf("another model's plan: %v", err)
	}
}
