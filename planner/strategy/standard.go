package strategy

import "spillway/plan"

// Standard keeps everything on one device.
var Standard = &Strategy{
	Name:        "standard",
	Title:       "standard",
	Doc:         "everything stays on one device",
	Constraints: Constraints{Weights: plan.OnDevice, State: plan.OnDevice, Activations: Saved},
	Describe:    func(Choice) string { return "standard" },
	Lines:       func(Facts) []Line { return []Line{{0, func(int) Mix { return Mix{} }}} },
}
