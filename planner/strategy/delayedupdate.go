package strategy

import "fmt"

// DelayedUpdate makes clipped updates in the next iteration, before the weights are used
// there: the norm of all gradients is known only when the backward has ended.
var DelayedUpdate = &Strategy{
	Name:  "delayed-update",
	Title: "delayed update",
	Doc:   "clipped updates are made in the next step, before the weights are used",
	Needs: Needs{Training: true},
	In:    func(c Choice) bool { return c.DelayedSlabs() > 0 },
	Describe: func(c Choice) string {
		return fmt.Sprintf("%d of %d updated in the next step", c.DelayedSlabs(), len(c.OffloadedState))
	},
	Variant: func(f Facts, line Line) (Line, bool) {
		return Line{line.Size, func(i int) Mix { m := line.Mix(i); m.DelayedUpdates = true; return m }},
			f.DelayedUpdates && line.Mix(line.Size).OffloadedState > 0
	},
}
