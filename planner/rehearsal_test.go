package planner_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"spillway/device/sim"
	"spillway/dtype"
	"spillway/graph"
	"spillway/internal/tiny"
	"spillway/machine"
	"spillway/op"
	"spillway/plan"
	"spillway/planner"
)

// rehearsed is a device on which a pass takes so many times what its calls do.
type rehearsed struct {
	*sim.Timing
	times  time.Duration
	passes []machine.Pass
}

func (r *rehearsed) Time(c op.Call) (machine.CallTime, bool) {
	return machine.CallTime{Device: r.Timing.Time(c), Launch: time.Nanosecond}, true
}
func (r *rehearsed) Within(int64) machine.Calls { return r }
func (r *rehearsed) Rehearse(p machine.Pass) (took time.Duration, known bool) {
	r.passes = append(r.passes, p)
	for _, c := range p.Calls {
		took += r.times * r.Timing.Time(c.Call)
	}
	return took, true
}
func (r *rehearsed) Replay(launches, renewed int) (time.Duration, bool) {
	return time.Duration(launches+renewed) * time.Millisecond, true
}

// A plan is forecast by what its programs took one call after the other, where a device at hand ran them. They are given
// to it with the places that the plan has for their values, each program once.
func TestPlansAreRehearsed(t *testing.T) {
	m := tiny.Model(t, tiny.Untied, graph.Config{MicroBatchSize: 2, Seq: 8, Task: graph.Train})
	site := tiny.Site(1 << 40)
	r := &rehearsed{Timing: sim.NewTiming(tiny.Device, site.DType), times: 3}
	site.Device.Calls = r
	p, err := planner.Make(m, tiny.AdamW(2, true), site)
	if err != nil {
		t.Fatal(err)
	}
	before, others := *p.Forecast, slices.Clone(p.Rejected)
	if len(r.passes) > 0 {
		t.Errorf("the search ran %d programs", len(r.passes))
	}
	after, err := planner.Rehearse(p, site)
	if err != nil {
		t.Fatal(err)
	}
	if ratio := p.Forecast.StepSeconds / before.StepSeconds; ratio < 2 || ratio > 3 {
		t.Errorf("a step takes %.2f times as long where its blocks take three times as long", ratio)
	}
	if len(others) == 0 {
		t.Error("no other plan was thought of")
	}
	for i, o := range p.Rejected { // one of twice the time stays one of twice the time
		was, is := others[i].StepSeconds/before.StepSeconds, o.StepSeconds/p.Forecast.StepSeconds
		if !o.LowerBound && math.Abs(is-was) > 1e-9*was {
			t.Errorf("%s took %.3f times as long as the plan, next to its programs run %.3f times", o.Strategy, was, is)
		}
	}
	if events, err := planner.Timeline(p, after); err != nil || float64(events[len(events)-1].End)/1e9 < 2*before.StepSeconds {
		t.Errorf("its timeline is that of calls by themselves: %v", err)
	}
	runs, updates, of := map[int]bool{}, map[int]bool{}, map[string]bool{}
	for _, s := range p.Instructions {
		switch s.Verb {
		case plan.Run:
			runs[s.Program] = true
		case plan.Update:
			updates[s.Slab] = true
		}
	}
	for _, pass := range r.passes {
		var calls []op.Call
		for _, c := range pass.Calls {
			calls = append(calls, c.Call)
			if in := c.Call.InPlace(); in != nil && c.Places[len(c.Call.In)] != c.Places[in[0]] {
				t.Errorf("%v is not in place", c.Call)
			}
		}
		if of[sim.PassKey(calls)] {
			t.Errorf("%v and others were run twice", calls[0])
		}
		of[sim.PassKey(calls)] = true
	}
	if len(r.passes) < len(runs)+1 || len(r.passes) > len(runs)+len(updates) { // equal blocks share an update
		t.Errorf("%d passes of %d programs and the updates of %d slabs", len(r.passes), len(runs), len(updates))
	}
	for _, pass := range r.passes {
		for _, c := range pass.Calls {
			if len(c.Places) != len(c.Call.In)+len(c.Call.Out) {
				t.Fatalf("%v has %d places", c.Call, len(c.Places))
			}
			for i, at := range c.Places {
				of := append(append([]op.Type(nil), c.Call.In...), c.Call.Out...)[i]
				place := pass.Places[at]
				if place.Bytes < of.Bytes() || place.Scratch && place.Offset+of.Bytes() > pass.Scratch || place.Scratch && place.Shared {
					t.Errorf("operand %d of %v is at %+v of %d bytes of scratch memory", i, c.Call, place, pass.Scratch)
				}
			}
		}
	}
	q := p.Capture()
	one := *p.Forecast
	if _, err := planner.Rehearse(q, site); err != nil || q.Forecast.StepSeconds < one.StepSeconds+float64(q.Launches())*1e-3 {
		t.Errorf("a captured step of %d launches takes %.3g s, one by one %.3g: %v", q.Launches(), q.Forecast.StepSeconds, one.StepSeconds, err)
	}
	r.times = 100
	disturbed := p.Forecast.StepSeconds
	if _, err := planner.Rehearse(p, site); err != nil || p.Forecast.StepSeconds > disturbed {
		t.Errorf("a measurement that took a hundred times as long counts: %.3g s, %v", p.Forecast.StepSeconds, err)
	}
}

// Of a plan to generate, the steps of a CPU are forecast by what their programs took, where they are asked for; a GPU's are not run.
func TestStepsAreRehearsed(t *testing.T) {
	m := tiny.Model(t, tiny.Untied, graph.Config{MicroBatchSize: 1, Seq: 8, Task: graph.Generate,
		Cache: &graph.KVCache{Streams: 2, Context: 32, Page: 16, Chunk: 8, Outputs: 2, Key: dtype.F32, Value: dtype.F32}})
	for _, kind := range []machine.Kind{machine.CPU, machine.GPU} {
		site := tiny.Site(1 << 40)
		r := &rehearsed{Timing: sim.NewTiming(tiny.Device, site.DType), times: 3}
		site.Device.Kind, site.Device.Calls = kind, r
		p, err := planner.Make(m, planner.Goal{MicroBatches: 1}, site)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := planner.Rehearse(p, site); err != nil || len(r.passes) > 0 {
			t.Fatalf("%d programs were run, %v", len(r.passes), err)
		}
		few, err := planner.Filled(p, site, "", 4)
		if err != nil {
			t.Fatal(err)
		}
		ran, ratio := len(r.passes), few.StepSeconds/p.Forecast.StepSeconds
		if want := kind == machine.CPU; want != (ran > 0) || want != (ratio > 2 && ratio < 3.1) {
			t.Errorf("%v: %d programs were run, a step takes %.2f times its calls", kind, ran, ratio)
		}
		if _, err := planner.Filled(p, site, "", 30); err != nil || (kind == machine.CPU) != (len(r.passes) > ran) {
			t.Errorf("%v: %d programs were run for other positions, %v", kind, len(r.passes)-ran, err)
		}
	}
}
