package strategy

import (
	"fmt"

	"spillway/plan"
)

// Checkpointing saves less for the backward and computes the rest again.
var Checkpointing = &Strategy{
	Name:        "checkpointing",
	Title:       "checkpointing",
	Doc:         "values that the backward reads are computed again instead of saved",
	Needs:       Needs{Training: true},
	Constraints: Constraints{Weights: plan.OnDevice, State: plan.OnDevice, Activations: Recomputed},
	In:          func(c Choice) bool { return c.blocksAt(SaveMatmuls, SaveAttention, SaveNone) > 0 },
	Describe: func(c Choice) string {
		n, attention := c.blocksAt(SaveAttention, SaveNone), c.blocksAt(SaveAttention)
		switch {
		case n == 0:
			return fmt.Sprintf("selective checkpointing of %d of %d blocks", c.blocksAt(SaveMatmuls), len(c.Level))
		case attention > 0:
			return fmt.Sprintf("checkpointing of %d of %d blocks (attention of %d saved)", n, len(c.Level), attention)
		}
		return fmt.Sprintf("checkpointing of %d of %d blocks", n, len(c.Level))
	},
	Lines: func(f Facts) []Line {
		if !f.Training {
			return nil
		}
		return []Line{{f.AllRecomputed(), func(i int) Mix { return Mix{Recompute: i} }}}
	},
}
