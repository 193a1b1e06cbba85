package plan

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
