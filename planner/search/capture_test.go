package search

import (
	"fmt"
	"testing"
	"time"

	"spillway/graph"
	"spillway/machine"
	"spillway/plan"
	"spillway/planner/forecast"
	"spillway/planner/strategy"
)

// Launching kernels is part of a forecast where an iteration has more of them than can be
// captured; a captured iteration takes the time of its kernels alone.
func TestForecastsCountLaunches(t *testing.T) {
	rates := tinyRates
	rates.Kernel, rates.Launch = time.Microsecond, time.Millisecond
	for _, layers := range []int{4, 400} {
		p, f := captured(t, layers, rates)
		all := time.Duration(p.Launches()) * rates.Launch
		if waits := f.StepSeconds > 0.9*all.Seconds(); waits == p.Captured {
			t.Errorf("%d launches and copies take %v to launch: the forecast is %.3g s", p.Launches(), all, f.StepSeconds)
		}
	}
}

// A plan of small kernels, which take less than their launches, is captured; one of large
// kernels is not.
func TestSmallKernelsAreCaptured(t *testing.T) {
	for launch, want := range map[time.Duration]bool{time.Millisecond: true, time.Nanosecond: false} {
		rates := tinyRates
		rates.Kernel, rates.Launch = time.Nanosecond, launch
		if p, f := captured(t, 4, rates); p.Captured != want {
			t.Errorf("%d launches of %v in %.3g s: captured is %v", p.Launches(), launch, f.StepSeconds, p.Captured)
		}
	}
}

// captured is the standard plan of a small model, captured where that is faster.
func captured(t *testing.T, layers int, rates machine.Device) (*plan.Plan, *plan.Forecast) {
	t.Helper()
	s := newSearch(blueprintOf(t, fmt.Sprintf(layered, layers), 1, 1, graph.Train, rates).itself())
	p, err := s.b.writer.Plan(s.choice(strategy.Mix{}))
	if err != nil {
		t.Fatal(err)
	}
	p, f, err := forecast.CaptureIfFaster(p, s.b.Site)
	if err != nil {
		t.Fatal(err)
	}
	return p, f
}
