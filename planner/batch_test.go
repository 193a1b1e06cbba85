package planner_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"spillway/device/sim"
	"spillway/dtype"
	"spillway/graph"
	"spillway/internal/tiny"
	"spillway/plan"
	"spillway/planner"
	"spillway/planner/strategy"
	"spillway/units"
)

// A batch is cut and divided over devices as the fastest of all plans does it, each number of
// micro-batches planned by itself, whatever the machine.
func TestBatchesAreCutAsIsFastest(t *testing.T) {
	r := rand.New(rand.NewPCG(14, 5))
	severalMicros, severalDevices := 0, 0
	for n := range 16 {
		size := []int64{1, 4, 6, 7, 8, 12}[r.IntN(6)]
		goal := planner.Goal{}
		if n%4 > 0 {
			goal = tiny.AdamW(0, n%4 == 1)
		}
		q := tinyRequest(t, int64(60+r.IntN(400))<<10, goal)
		d := tiny.Device
		d.Launch = time.Duration(r.IntN(20)) * time.Microsecond
		d.Compute.F32 = units.Flops(math.Pow(10, 9+3*r.Float64()))
		d.Link.In, d.Link.Out = d.Link.In/units.Rate(1+r.IntN(20)), d.Link.Out/units.Rate(1+r.IntN(20))
		q.Site.Device, q.Site.Kernels = d, sim.NewVirtual(d, dtype.F32, 0, planner.Alignment)
		q.Site.Devices, q.Site.Peer = 1+r.IntN(4), d.Link.In*units.Rate(r.IntN(4))
		best := math.Inf(1)
		for micros := int64(1); micros <= size; micros++ {
			if size%micros == 0 {
				one := q
				one.Goal.MicroBatches, one.MicroBatchSize = int(micros), size/micros
				if p, _, err := one.Plan(); err == nil {
					best = min(best, p.Forecast.StepSeconds)
				}
			}
		}
		p, m, notices, err := q.PlanBatch(planner.Batch{Size: size})
		var misfit *planner.FitError
		switch {
		case len(notices) > 0 && p.MicroBatches == 1:
			t.Errorf("%d: notices %q", n, notices)
		case math.IsInf(best, 1):
			if !errors.As(err, &misfit) || misfit.Needed <= misfit.Budget {
				t.Errorf("%d: no plan fits, and the answer is %v, %v", n, p, err)
			}
		case err != nil:
			t.Errorf("%d: %v, and a plan takes %g s", n, err, best)
		case p.MicroBatchSize*int64(p.MicroBatches) != size || m.Config.MicroBatchSize != p.MicroBatchSize:
			t.Errorf("%d: %d micro-batches of %d for a batch of %d", n, p.MicroBatches, p.MicroBatchSize, size)
		case p.Forecast.StepSeconds > 1.01*best:
			t.Errorf("%d: a batch of %d on %d devices in %d micro-batches, %s: %g s; the best of all takes %g s", n, size, q.Site.Devices, p.MicroBatches, p.Strategy, p.Forecast.StepSeconds, best)
		default:
			if p.MicroBatches > 1 {
				severalMicros++
			}
			if len(p.Devices) > 1 {
				severalDevices++
			}
		}
	}
	if severalMicros < 4 || severalDevices < 4 {
		t.Errorf("%d batches were cut, %d used several devices: the machines are too much alike", severalMicros, severalDevices)
	}
}

// A parallelism that needs several micro-batches gets them, and one that cannot have them says so.
func TestBatchesServeConstraints(t *testing.T) {
	q := tinyRequest(t, 1<<20, tiny.AdamW(0, false))
	q.Site.Devices = 4
	for _, by := range strategy.Parallelisms {
		q.Goal.Constraints.Parallelism = by
		p, _, _, err := q.PlanBatch(planner.Batch{Size: 8})
		if err != nil || len(p.Devices) < 2 {
			t.Errorf("%s: %v", by, err)
		}
	}
	q.Goal.Constraints.Parallelism = strategy.ZeRO2
	if _, _, _, err := q.PlanBatch(planner.Batch{Size: 1}); err == nil {
		t.Error("one sequence is shared by four devices")
	}
	q.Goal.Constraints.Parallelism = ""
	p, _, notices, err := q.PlanBatch(planner.Batch{Size: 1, Prefer: strategy.ZeRO2})
	if err != nil || len(notices) != 1 || p == nil {
		t.Errorf("one sequence with a preference: %v, notices %q", err, notices)
	}
}

// Many micro-batches fit where two of them do with a place for the gradients: they pass the blocks in rounds, so that no more
// activations wait than those of a round.
func TestLargeBatchesGoInRounds(t *testing.T) {
	r := named(t, "llama-50m", "gpu:1000MiB,host:900MiB", 1, 2048, graph.Train)
	few, _, _, err := r.PlanBatch(planner.Batch{Size: 2})
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range []planner.Batch{{Size: 64}, {Size: 64, MicroBatches: 64}, {Size: 256}} {
		p, _, _, err := r.PlanBatch(b)
		if err != nil {
			t.Errorf("%+v: %v", b, err)
			continue
		}
		if err := plan.Verify(p); err != nil {
			t.Errorf("%+v: %v", b, err)
		}
		if !strings.Contains(p.Strategy, "rounds") {
			t.Errorf("%+v: %s; at once, activations of all micro-batches would take more than the host has", b, p.Strategy)
		}
		if p.Forecast.TokensPerSec < few.Forecast.TokensPerSec {
			t.Errorf("%+v: %v tokens/s, a batch of 2 has %v", b, p.Forecast.TokensPerSec, few.Forecast.TokensPerSec)
		}
	}
}
