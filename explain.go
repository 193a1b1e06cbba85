package spillway

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"spillway/plan"
	"spillway/units"
)

// Explanation says how a model is run, why, and what else was considered.
type Explanation struct {
	Task     Task   `json:"task"`
	Strategy string `json:"strategy"`
	Reason   string `json:"reason"`
	// BatchSize sequences in a batch, each of Seq positions, cut into MicroBatches.
	BatchSize    int64 `json:"batch_size"`
	Seq          int64 `json:"seq"`
	MicroBatches int   `json:"micro_batches"`
	// Peak is what the plan takes of each tier, StepSeconds how long a batch is
	// forecast to take, and Bound the resource that is busiest.
	Peak        map[plan.Tier]int64 `json:"peak_bytes"`
	StepSeconds float64             `json:"step_seconds"`
	Bound       string              `json:"bound"`
	// Input is what the copies of a batch take, and whether it comes during the step before (see Wrapped.Steps).
	Input plan.Input `json:"input"`
	// Rejected strategies, with the reason against each.
	Rejected []plan.Alternative `json:"rejected"`
	// Notices of what was done otherwise than asked or planned, oldest first.
	Notices []string `json:"notices,omitempty"`
}

// Explain says how the model was run last.
func (w *Wrapped) Explain() Explanation {
	x := Explanation{Notices: slices.Clone(w.notices)}
	if w.latest == nil {
		x.Reason = "nothing is planned yet: the first batch says its sizes"
		return x
	}
	o, p := w.latest.Options, w.latest.Plan
	x.Task, x.Strategy, x.Reason = o.Task, p.Strategy, p.Reason
	x.BatchSize, x.Seq, x.MicroBatches = o.BatchSize, o.Seq, p.MicroBatches
	x.Peak, x.StepSeconds, x.Bound, x.Rejected = p.Peak(), p.Forecast.StepSeconds, p.Forecast.Bound, p.Rejected
	x.Input = p.Forecast.Input
	return x
}

// String is the explanation for people, a line each.
func (x Explanation) String() string {
	var s strings.Builder
	if x.Strategy != "" {
		fmt.Fprintf(&s, "%s: %s\n", x.Task, x.Strategy)
	}
	fmt.Fprintf(&s, "  because %s\n", x.Reason)
	if x.Strategy != "" {
		var peaks []string
		for _, t := range slices.Sorted(maps.Keys(x.Peak)) {
			peaks = append(peaks, fmt.Sprintf("%v of %s", units.Bytes(x.Peak[t]), t))
		}
		fmt.Fprintf(&s, "  batches of %d × %d, %d at once: %s; %s each, bound by %s\n", x.BatchSize, x.Seq, x.BatchSize/int64(x.MicroBatches), strings.Join(peaks, ", "), units.Seconds(x.StepSeconds), x.Bound)
	}
	if f := (plan.Forecast{StepSeconds: x.StepSeconds, Input: x.Input}); f.InputMatters() {
		fmt.Fprintf(&s, "  %v\n", x.Input)
	}
	for _, o := range x.Rejected {
		fmt.Fprintf(&s, "  not %s: %s\n", o.Strategy, o.Reason)
	}
	for _, n := range x.Notices {
		fmt.Fprintf(&s, "  note: %s\n", n)
	}
	return strings.TrimSuffix(s.String(), "\n")
}
