package eventlog

// Profile is what the ops of one step took, by module: where the time of the step is.
type Profile struct {
	Step  int64  `json:"step"`
	Phase string `json:"phase,omitempty"` // of the plan; "" is its main instructions
	// Seconds is the whole step, with its ops timed one by one.
	Seconds float64      `json:"seconds"`
	Rows    []ProfileRow `json:"rows"` // the one that took longest first
}

// ProfileRow is an op in a module, or an instruction that runs no ops: a copy, an update.
type ProfileRow struct {
	Module string `json:"module"` // of the model: "layer", "head"
	Op     string `json:"op"`     // "matmul"; of other instructions the verb
	Pass   string `json:"pass"`   // forward or backward; "" of other instructions
	Lane   string `json:"lane"`   // device and queue that it ran on
	Calls  int64  `json:"calls"`
	// Seconds is what all calls took. Bound is what they take at least by the rates of the machine,
	// and By what limits that: compute, memory or link.
	Seconds float64 `json:"seconds"`
	Bound   float64 `json:"bound_seconds"`
	By      string  `json:"bound"`
	Flops   float64 `json:"flops"`
	Bytes   int64   `json:"bytes"`                 // of memory traffic, or that crossed a link
	Saved   int64   `json:"saved_bytes,omitempty"` // of the outputs, saved for the backward pass
}

// Share of the roofline: Bound over Seconds, 0 where nothing bounds it.
func (r ProfileRow) Share() float64 {
	if r.Seconds <= 0 {
		return 0
	}
	return r.Bound / r.Seconds
}
