package strategy

import "fmt"

// ActivationOffload lets what is saved for the backward wait in host memory. A search
// offers it together with CPU offload.
var ActivationOffload = &Strategy{
	Name:  "activation-offload",
	Title: "activation offload",
	Doc:   "what is saved for the backward waits in host memory",
	Needs: Needs{Training: true},
	In:    func(c Choice) bool { return Count(c.OffloadedActivations) > 0 },
	Describe: func(c Choice) string {
		return fmt.Sprintf("activation offload of %d of %d blocks", Count(c.OffloadedActivations), len(c.OffloadedActivations))
	},
	Lines: func(f Facts) []Line {
		if !f.Alone {
			return nil
		}
		return []Line{{f.Blocks, func(i int) Mix { return Mix{OffloadedActivations: i} }}}
	},
}
