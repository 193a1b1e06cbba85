package placement

import (
	"spillway/plan"
	"spillway/planner"
)

// Apply adds to a request where the map puts the blocks, within memory, and gives notices
// of what in the map means nothing. A word places weights alone; where the plan then lacks
// memory on a device for everything else, it places them again within less.
func (m Map) Apply(r *planner.Request, memory Memory) (notices []string, err error) {
	model, err := r.Trace(r.MicroBatchSize, r.Seq)
	if err != nil {
		return nil, err
	}
	blocks := Blocks(model)
	for {
		if r.Goal.Constraints.Places, notices, err = m.Places(blocks, memory); err != nil || m.Word == "" {
			return notices, err
		}
		lacks, err := r.Shortfall()
		if err != nil || lacks == nil || lacks.Tier != plan.OnDevice {
			return notices, err // planning reports what is wrong, if anything
		}
		left := false // something to lower
		for d, n := range memory.Devices {
			left = left || n > 0
			memory.Devices[d] = max(n-(lacks.Needed-lacks.Budget), 0)
		}
		if !left {
			return notices, nil
		}
		memory.Given = true
	}
}
