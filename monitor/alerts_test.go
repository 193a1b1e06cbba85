package monitor

import (
	"math/rand/v2"
	"strings"
	"testing"

	"spillway/eventlog"
	"spillway/plan"
	"spillway/trace"
)

// heard collects alerts.
func heard() (*rules, *[]eventlog.Alert) {
	var list []eventlog.Alert
	return &rules{alert: func(a eventlog.Alert) { list = append(list, a) }}, &list
}

// A noisy loss that falls is no alert; one that jumps is one, once.
func TestLossSpikes(t *testing.T) {
	r, alerts := heard()
	random := rand.New(rand.NewPCG(1, 2))
	for n := range 1000 {
		r.iteration(&eventlog.Iteration{Step: int64(n + 1), Loss: 2 + 3/float64(n+1) + 0.1*random.NormFloat64()})
	}
	if len(*alerts) != 0 {
		t.Fatalf("an ordinary run has %v", *alerts)
	}
	for n := range 10 {
		r.iteration(&eventlog.Iteration{Step: int64(1001 + n), Loss: 4})
	}
	if len(*alerts) != 1 || (*alerts)[0].Name != "loss-spike" || (*alerts)[0].Step != 1001 {
		t.Errorf("%v", *alerts)
	}
}

// Twenty slow steps in a row are an alert, once, with the lane that a trace found.
func TestSlowerThanForecast(t *testing.T) {
	r, alerts := heard()
	step := func(seconds float64) { r.iteration(&eventlog.Iteration{Seconds: seconds, Forecast: 0.1, Loss: 1}) }
	for range 50 { // now and then is fine
		for range slowSteps - 1 {
			step(0.12)
		}
		step(0.1)
	}
	in := trace.Lane{Device: "gpu0", Queue: "in"}
	at := func(end int64) []trace.Event {
		return []trace.Event{{Verb: trace.Move, Lane: in, End: end, Bytes: 1 << 30}, {Verb: trace.Run, Lane: trace.Lane{Device: "gpu0", Queue: "compute"}, End: 100}}
	}
	r.traced(3, at(150_000_000), at(100_000_000))
	for range 50 {
		step(0.12)
	}
	if len(*alerts) != 2 || (*alerts)[0].Name != "slow-link" || (*alerts)[1].Name != "slower-than-forecast" || !strings.Contains((*alerts)[1].Text, "gpu0 in") {
		t.Errorf("%v", *alerts)
	}
}

// Copies inside a device cross no link, however slow they are.
func TestSlowLinksAreOfCopiesOverThem(t *testing.T) {
	for queue, want := range map[plan.Lane]int{plan.In: 1, plan.Out: 1, plan.Compute: 0} {
		r, alerts := heard()
		at := func(end int64) []trace.Event {
			return []trace.Event{{Verb: trace.Move, Lane: trace.Lane{Device: "gpu0", Queue: string(queue)}, End: end, Bytes: 1 << 30}}
		}
		r.traced(3, at(200_000_000), at(100_000_000))
		if len(*alerts) != want {
			t.Errorf("copies on %s: %v", queue, *alerts)
		}
	}
}

func TestAlertsOfSamples(t *testing.T) {
	r, alerts := heard()
	r.checkpoint = 100
	for _, s := range []eventlog.Sample{{Pressure: 0.01, DiskFree: 1000}, {Pressure: 0.5, DiskFree: 1000}, {Pressure: 0.6, DiskFree: 99}, {}} {
		r.sampled(s)
	}
	if len(*alerts) != 2 || (*alerts)[0].Name != "memory-pressure" || (*alerts)[1].Name != "disk-full" {
		t.Errorf("%v", *alerts)
	}
}

func TestStaleCheckpoints(t *testing.T) {
	r, alerts := heard()
	r.saveEvery = 10
	for n := int64(1); n <= 40; n++ {
		if n == 10 {
			r.lastSave = 10
		}
		r.iteration(&eventlog.Iteration{Step: n, Loss: 1})
	}
	if len(*alerts) != 1 || (*alerts)[0].Name != "stale-checkpoint" || (*alerts)[0].Step != 26 {
		t.Errorf("%v", *alerts)
	}
}

func TestRulesAllocateNothing(t *testing.T) {
	r, _ := heard()
	it := eventlog.Iteration{Loss: 1, Seconds: 0.1, Forecast: 0.1}
	for range 2 * lossWindow {
		r.iteration(&it)
	}
	if n := testing.AllocsPerRun(100, func() { r.iteration(&it) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
