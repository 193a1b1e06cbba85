package monitor

import (
	"math"
	"strings"
	"testing"
	"time"

	"spillway/eventlog"
)

func names(list []eventlog.Alert) string {
	var all []string
	for _, a := range list {
		all = append(all, a.Name)
	}
	return strings.Join(all, " ")
}

// A loss of NaN is an alert, once, and leaves the window of losses as it was.
func TestLossNotANumber(t *testing.T) {
	r, alerts := heard()
	for n := range int64(200) {
		loss := 2.0
		if n == 100 || n == 101 {
			loss = math.NaN()
		}
		r.iteration(&eventlog.Iteration{Step: n + 1, Loss: loss})
	}
	if names(*alerts) != "loss-not-a-number" || (*alerts)[0].Step != 101 || (*alerts)[0].Level != eventlog.Serious {
		t.Errorf("%v", *alerts)
	}
}

func TestGradientNormSpikes(t *testing.T) {
	r, alerts := heard()
	for n := range int64(200) {
		it := eventlog.Iteration{Step: n + 1, Loss: 2, GradNorm: 1 + 0.2*math.Sin(float64(n))}
		if n == 150 {
			it.GradNorm = 40
		}
		if n == 170 {
			it.GradNorm = 2 // happens
		}
		r.iteration(&it)
	}
	if names(*alerts) != "grad-norm-spike" || (*alerts)[0].Step != 151 {
		t.Errorf("%v", *alerts)
	}
}

// A clock that falls while the GPU works is an alert with the reason, once, and again after it had
// recovered; one of an idle GPU is none.
func TestLoweredClocks(t *testing.T) {
	r, alerts := heard()
	at := func(n, busy, clock int, why ...string) {
		for range n {
			r.sampled(eventlog.Sample{GPUs: []eventlog.GPUSample{{Busy: 99, Clock: 1500, ClockBest: 1980}, {Busy: busy, Clock: clock, ClockBest: 1980, Temperature: 88, Lowered: why}}})
		}
	}
	at(20, 99, 1900)
	at(20, 0, 345) // idle
	at(3, 99, 1200, "power limit")
	at(10, 99, 1900)
	if len(*alerts) != 0 {
		t.Fatalf("%v", *alerts)
	}
	at(20, 99, 1200, "power limit")
	at(5, 99, 1900)
	at(20, 99, 1300, "temperature")
	if names(*alerts) != "clock-lowered clock-lowered" || (*alerts)[0].Text != "the clock of GPU 1 is 1200 MHz for 5 seconds, it was 1900: lowered by power limit, at 88 °C" {
		t.Errorf("%v", *alerts)
	}
	r, alerts = heard() // hot from the first second on
	at(10, 99, 1000, "temperature, by hardware")
	if names(*alerts) != "clock-lowered" || !strings.Contains((*alerts)[0].Text, "it was 1980") {
		t.Errorf("%v", *alerts)
	}
}

// A link with fewer lanes than the slot has is an alert while the GPU works; one that rests is none.
func TestNarrowLinks(t *testing.T) {
	r, alerts := heard()
	at := func(n, busy, generation, width int) {
		for range n {
			r.sampled(eventlog.Sample{GPUs: []eventlog.GPUSample{{Busy: busy, Clock: 1900, Generation: generation, LinkWidth: width, BestGen: 5, LinkBest: 16}}})
		}
	}
	at(20, 0, 1, 16)
	at(20, 99, 5, 16)
	if len(*alerts) != 0 {
		t.Fatalf("%v", *alerts)
	}
	at(20, 99, 5, 4)
	if names(*alerts) != "slow-link" || !strings.Contains((*alerts)[0].Text, "PCIe 5 × 4, it can have 5 × 16") {
		t.Errorf("%v", *alerts)
	}
}

// A disk that has no place for the checkpoints to come, or that somebody else fills, is an alert
// before it is full.
func TestDiskFullBeforeTheEnd(t *testing.T) {
	r, alerts := heard()
	r.saveEvery, r.checkpoint, r.keep = 10, 100, 3
	r.iteration(&eventlog.Iteration{Step: 1, MaxSteps: 100, Loss: 1, ETA: 1000})
	start := time.Now()
	at := func(second int, free int64) {
		r.sampled(eventlog.Sample{Time: start.Add(time.Duration(second) * time.Second), DiskFree: free})
	}
	at(0, 500)
	if len(*alerts) != 0 {
		t.Fatalf("%v", *alerts)
	}
	at(1, 399) // four at once, while the oldest is removed
	at(2, 99)
	if names(*alerts) != "disk-full" || !strings.Contains((*alerts)[0].Text, "4 checkpoints to come take 400 B") {
		t.Errorf("%v", *alerts)
	}
	r, alerts = heard()
	r.iteration(&eventlog.Iteration{Step: 1, Loss: 1, ETA: 10_000})
	for n := range 120 {
		at(n, 1<<30-int64(n)<<10)
	}
	if len(*alerts) != 0 {
		t.Fatalf("%v", *alerts)
	}
	r, alerts = heard()
	r.iteration(&eventlog.Iteration{Step: 1, Loss: 1, ETA: 10_000})
	for n := range 120 {
		at(n, 1<<30-int64(n)<<20)
	}
	if names(*alerts) != "disk-filling" {
		t.Errorf("%v", *alerts)
	}
}

// Counters that do not show what the plan moves are an alert after some steps; evaluations are none.
func TestPlacementThatCountersDoNotShow(t *testing.T) {
	r, alerts := heard()
	var in, out int64
	step := func(n int, more int64, clean bool) {
		for range n {
			in, out = in+more, out+500<<20
			r.placed(7, clean, in, out, 1000<<20, 500<<20)
		}
	}
	step(20, 1000<<20, true)
	step(3, 2000<<20, false)
	step(4, 0, true)
	step(1, 1000<<20, true)
	if len(*alerts) != 0 {
		t.Fatalf("%v", *alerts)
	}
	step(20, 0, true)
	if names(*alerts) != "placement" || !strings.Contains((*alerts)[0].Text, "counters show 0 B") {
		t.Errorf("%v", *alerts)
	}
}
