package run_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"spillway"
	"spillway/device"
	"spillway/device/cpu"
	"spillway/device/sim"
	"spillway/internal/runtest"
	"spillway/plan"
	"spillway/planner"
	"spillway/planner/strategy"
	"spillway/rig"
	"spillway/train"
)

// smallJob plans a training run of a tiny Llama with room for everything, and gives what it
// takes and its losses.
func smallJob(t *testing.T, o spillway.Options) (job *spillway.Run, peak int64, losses []float64) {
	t.Helper()
	dev := openDevice(t)
	o.Task, o.MicroBatchSize, o.Seq, o.Packed, o.Machine, o.On = spillway.Train, 2, 12, true, parse(t, "cpu:1GiB,host:4GiB"), []device.Device{dev}
	job, err := open(t, configFile(t, tinyLlama(true, 0))).Plan(o)
	if err != nil {
		t.Fatal(err)
	}
	losses, _, err = trainFor(t, job, 5)
	if err != nil {
		t.Fatal(err)
	}
	return job, job.Plan.Peak()[plan.OnDevice], losses
}

func trainFor(t *testing.T, job *spillway.Run, n int64) (losses []float64, notices []string, err error) {
	t.Helper()
	_, err = train.Run(context.Background(), job, packedFeed(t, 12), train.Config{Iterations: n,
		Report: func(r train.Report) { losses = append(losses, r.Loss) }, Notice: func(s string) { notices = append(notices, s) }})
	return losses, notices, err
}

// Where a device or the host has less at the start than the plan assumed, training
// plans again, says so, and gives the same losses.
func TestTrainingStartsWithinWhatThereIs(t *testing.T) {
	for name, shrink := range map[string]func(*spillway.Run, int64){
		"device": func(j *spillway.Run, peak int64) {
			j.Options.On = []device.Device{sim.NewCapped(openDevice(t), peak*3/4, sim.Faults{})}
		},
		"held by others": func(j *spillway.Run, peak int64) {
			dev := cpu.Open(cpu.Options{Limit: peak + 1000})
			other, err := dev.Alloc(peak / 4)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := errors.Join(other.Free(), dev.Close()); err != nil {
					t.Error(err)
				}
			})
			j.Options.On = []device.Device{dev}
		},
		"host": func(j *spillway.Run, peak int64) { j.Options.System = runtest.Remaining(t, peak*7/8) },
	} {
		job, peak, want := smallJob(t, spillway.Options{})
		before := job.Plan.Strategy
		shrink(job, peak)
		got, notices, err := trainFor(t, job, 5)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !slices.Equal(got, want) || len(notices) != 1 || !strings.Contains(notices[0], "planned again") {
			t.Errorf("%s: losses %v, want %v; notices %q", name, got, want, notices)
		}
		if job.Plan.Strategy == before || job.Plan.Peak()[plan.OnDevice] >= peak {
			t.Errorf("%s: the plan is still %s", name, job.Plan.Strategy)
		}
	}
}

// What was required has no other plan, and what fits nowhere is an error with what
// there is and what is needed.
func TestTrainingThatCannotStart(t *testing.T) {
	job, peak, _ := smallJob(t, spillway.Options{Choose: strategy.Uniform(false, false, strategy.SaveAll, 0)})
	job.Options.System = runtest.Remaining(t, peak-1024)
	var full *device.OutOfMemoryError
	if _, _, err := trainFor(t, job, 1); !errors.As(err, &full) || full.Device != "host" || full.Asked < peak || full.Limit > peak {
		t.Errorf("required: %v", err)
	}
	job, _, _ = smallJob(t, spillway.Options{})
	job.Options.System = runtest.Remaining(t, 64<<10)
	var fit *planner.FitError
	if _, _, err := trainFor(t, job, 1); !errors.As(err, &full) || !errors.As(err, &fit) || fit.Budget > 64<<10 {
		t.Errorf("64 KiB: %v", err)
	}
	refuses := errors.New("no more today")
	job.Options.System, job.Options.On = rig.System{}, []device.Device{sim.NewCapped(openDevice(t), 1<<30, sim.Faults{Alloc: 1, Err: refuses})}
	if _, _, err := trainFor(t, job, 1); !errors.Is(err, refuses) {
		t.Errorf("a fault that is none of memory: %v", err)
	}
}
