package run_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"spillway"
	"spillway/internal/runtest"
	"spillway/planner/strategy"
	"spillway/train"
)

// A training run that is asked for another plan while it runs goes on with it after its
// iteration, bit for bit; asked for what cannot be, it goes on as it was.
func TestRequestedPlansChangeNoBit(t *testing.T) {
	_, peak, want := smallJob(t, spillway.Options{})
	for name, c := range map[string]struct {
		change  func(o *spillway.Options)
		notices string
	}{
		"less":     {func(o *spillway.Options) { o.Budget = peak * 3 / 4 }, "planned again: now"},
		"too much": {func(o *spillway.Options) { o.Budget = 64 }, "goes on as before"},
		"refused": {func(o *spillway.Options) {
			o.Choose, o.System = strategy.Uniform(true, true, strategy.SaveNone, 1), runtest.Remaining(t, 1024)
		}, "goes on as before"},
	} {
		job, _, _ := smallJob(t, spillway.Options{})
		before := job.Plan.Strategy
		var losses []float64
		var notices []string
		_, err := train.Run(context.Background(), job, packedFeed(t, 12), train.Config{Iterations: 5, Notice: func(s string) { notices = append(notices, s) },
			Report: func(r train.Report) {
				if losses = append(losses, r.Loss); r.Iteration == 2 {
					job.RequestReplan(c.change)
				}
			}})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !slices.Equal(losses, want) {
			t.Errorf("%s: losses %v, without another plan %v", name, losses, want)
		}
		if !slices.ContainsFunc(notices, func(s string) bool { return strings.Contains(s, c.notices) }) {
			t.Errorf("%s: notices %q", name, notices)
		}
		if changed := job.Plan.Strategy != before; changed != (name == "less") {
			t.Errorf("%s: the plan was %s and is %s", name, before, job.Plan.Strategy)
		}
	}
}

// What is free now is more or less than the plan was made for.
func TestFreeNow(t *testing.T) {
	for _, free := range []int64{1 << 30, 9 << 30} {
		o := spillway.Options{Machine: parse(t, "cpu:4GiB@shared,host:4GiB"), System: runtest.Remaining(t, free)}
		was := o.Machine.Devices
		spillway.FreeNow(&o)
		if int64(o.Machine.Host.Usable) != free || int64(o.Machine.Devices[0].Usable) != free || int64(was[0].Usable) == free {
			t.Errorf("with %d bytes free the host has %v and the device %v, before %v", free, o.Machine.Host.Usable, o.Machine.Devices[0].Usable, was[0].Usable)
		}
	}
}
