package bench

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"spillway/eventlog"
)

const (
	// mostMisses is how many ops are listed, and namedMisses how many of them a line names.
	mostMisses, namedMisses = 16, 3
	// probedCalls is how many calls an op has at least that tells what timing takes of a call, and longCall how many
	// seconds a call takes at least for its time to mean something next to that.
	probedCalls, longCall = 20, 10e-6
)

// misses are the rows of a profile that differ most from their forecast, but for what timing takes of each call: as much as of
// the op on a GPU that it takes least of.
func misses(rows []eventlog.ProfileRow) (list []eventlog.ProfileRow, probe float64) {
	probe = math.Inf(1)
	for _, r := range rows {
		if r.Forecast == 0 || r.Calls == 0 {
			continue
		}
		list = append(list, r)
		if r.Calls >= probedCalls {
			probe = min(probe, (r.Seconds-r.Forecast)/float64(r.Calls))
		}
	}
	if probe = max(probe, 0); math.IsInf(probe, 1) {
		probe = 0
	}
	slices.SortStableFunc(list, func(a, b eventlog.ProfileRow) int {
		return cmp.Compare(math.Abs(missOf(b, probe)), math.Abs(missOf(a, probe)))
	})
	return list[:min(len(list), mostMisses)], probe
}

// missOf is how many seconds longer than forecast the calls of a row took.
func missOf(r eventlog.ProfileRow, probe float64) float64 {
	return r.Seconds - r.Forecast - probe*float64(r.Calls)
}

// Carriers names the ops that carry most of what a run differs from its forecast. Those of short calls are left out, which
// timing makes longer.
func (r *RandomRow) Carriers() string {
	type carrier struct {
		of    string
		calls int64
		more  float64
	}
	var list []carrier
	for _, row := range r.Ops {
		if more := missOf(row, r.Probe); row.Forecast > longCall*float64(row.Calls) && math.Abs(more) > leastDifference*r.Seconds {
			list = append(list, carrier{strings.TrimSpace(row.Op + " " + row.Pass), row.Calls, more})
		}
	}
	slices.SortStableFunc(list, func(a, b carrier) int { return cmp.Compare(math.Abs(b.more), math.Abs(a.more)) })
	var texts []string
	for _, c := range list[:min(len(list), namedMisses)] {
		texts = append(texts, fmt.Sprintf("%s %+.3g ms in %d calls", c.of, 1e3*c.more, c.calls))
	}
	return strings.Join(texts, ", ")
}
