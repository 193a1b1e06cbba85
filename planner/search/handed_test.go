package search

import (
	"fmt"
	"testing"
	"time"

	"spillway/graph"
	"spillway/planner/forecast"
	"spillway/planner/strategy"
)

// What handing kernels over takes is part of a forecast where an iteration has more of them
// than are noted; else their own time is.
func TestForecastsHandOverWhatIsNotNoted(t *testing.T) {
	rates := tinyRates
	rates.Kernel, rates.Launch = time.Microsecond, time.Millisecond
	for _, layers := range []int{4, 400} {
		s := newSearch(blueprintOf(t, fmt.Sprintf(layered, layers), 1, 1, graph.Train, rates).itself())
		p, err := s.b.writer.Plan(s.choice(strategy.Mix{}))
		if err != nil {
			t.Fatal(err)
		}
		p, f, err := forecast.CaptureIfFaster(p, s.b.Site)
		if err != nil {
			t.Fatal(err)
		}
		all := time.Duration(p.Launches()) * rates.Launch
		if waits := f.StepSeconds > 0.9*all.Seconds(); waits == p.Captured {
			t.Errorf("%d kernels and copies, %v to hand over: foretold are %.3g s", p.Launches(), all, f.StepSeconds)
		}
	}
}
