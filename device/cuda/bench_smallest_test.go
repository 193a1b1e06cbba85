package cuda_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"spillway/device/sim"
	"spillway/op"
	"spillway/plan"
	"spillway/rig"
	"spillway/units"
)

// callsOf are the calls an iteration of a plan computes, with how often.
func callsOf(p *plan.Plan) (calls map[string]op.Call, times map[string]int) {
	calls, times = map[string]op.Call{}, map[string]int{}
	for _, s := range p.Instructions {
		if s.Verb != plan.Run {
			continue
		}
		g := p.Programs[s.Program].Graph
		for _, n := range g.Nodes {
			c := g.Call(n)
			calls[c.String()] = c
			times[c.String()]++
		}
	}
	return calls, times
}

// What every call of a layer of a 70B Llama takes by itself, next to its forecast: where
// a forecast of the whole comes from.
func BenchmarkSmallestCalls(b *testing.B) {
	d := lent(b)
	o := smallOptions(b, d, 2048, 48*units.GiB)
	p := opened(b, "llama-2-70b", o).Plan
	timing := sim.NewTiming(o.Machine.Devices[0], o.Precision)
	calls, times := callsOf(p)
	for b.Loop() {
		var expected, took time.Duration
		for _, name := range slices.Sorted(maps.Keys(calls)) {
			alone, err := rig.Time(d, calls[name])
			if err != nil {
				b.Fatal(err)
			}
			n, forecast := time.Duration(times[name]), timing.Time(calls[name])
			expected, took = expected+n*forecast, took+n*alone
			fmt.Fprintf(os.Stderr, "%5d × %8.1f µs, expected %8.1f: %7.1f ms, %7.1f  %s\n", n, alone.Seconds()*1e6, forecast.Seconds()*1e6,
				(n*alone).Seconds()*1e3, (n*forecast).Seconds()*1e3, name)
		}
		b.ReportMetric(took.Seconds(), "s-calls")
		b.ReportMetric(expected.Seconds()/took.Seconds(), "expected")
	}
}
