package plan

import (
	"fmt"

	"spillway/units"
)

// Forecast is how long the plan took on the simulator, which carries it out in virtual
// time with the rates of the machine.
type Forecast struct {
	StepSeconds float64 `json:"step_seconds"` // one iteration
	Bound       string  `json:"bound"`        // the resource that is busiest
	// Busy is the share of the iteration during which each resource works.
	Busy map[string]float64 `json:"busy"`
	// RooflineShare is the time the busiest resource alone needs, over StepSeconds.
	RooflineShare float64        `json:"roofline_share"`
	TokensPerSec  float64        `json:"tokens_per_second"`
	PeakBytes     map[Tier]int64 `json:"peak_bytes"`
	BytesIn       int64          `json:"bytes_in"`
	BytesOut      int64          `json:"bytes_out"`
	Flops         float64        `json:"flops"`
	Input         Input          `json:"input,omitzero"`
}

// Input is what the copies of a batch from the host to a device take, of the device that has most of it.
type Input struct {
	Bytes   int64   `json:"bytes"`   // of all micro-batches
	Seconds float64 `json:"seconds"` // of the link
	// Prefetched: the first micro-batch comes during the iteration before, into memory of its own.
	Prefetched bool `json:"prefetched,omitempty"`
}

// InputMatters says whether the copies take a noticeable share of an iteration.
func (f *Forecast) InputMatters() bool { return f.Input.Seconds > noticeable*f.StepSeconds }

// noticeable is the share of an iteration from which on copies of its batch are shown.
const noticeable = 0.002

// String says when a batch comes and what it takes.
func (i Input) String() string {
	when := "before the step's first kernel"
	if i.Prefetched {
		when = "during the step before, into memory for a second batch"
	}
	return fmt.Sprintf("a batch of %v takes %.3g ms of the link, %s", units.Bytes(i.Bytes), 1e3*i.Seconds, when)
}

// Alternative is a strategy that was considered and not chosen.
type Alternative struct {
	Strategy   string         `json:"strategy"`
	Strategies []string       `json:"strategies"` // their names, as in Plan
	Reason     string         `json:"reason"`
	Fits       bool           `json:"fits"`
	PeakBytes  map[Tier]int64 `json:"peak_bytes"` // what it needs
	// StepSeconds of its forecast, where one was made.
	StepSeconds float64 `json:"step_seconds,omitempty"`
	// LowerBound: no forecast was made, StepSeconds is what its matmuls or transfers
	// take alone.
	LowerBound bool `json:"lower_bound,omitempty"`
}
