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
		if err != nil || lacks == nil || lacks.Tier != plan.OnDevice || !lower(memory.Devices, lacks.Needed-lacks.Budget) {
			return notices, err // planning reports what is wrong, if anything
		}
		memory.Given = true
	}
}

// lower lowers all limits by some bytes. It says whether anything was left to lower.
func lower(limits map[int]int64, by int64) (some bool) {
	for d, n := range limits {
		some = some || n > 0
		limits[d] = max(n-by, 0)
	}
	return some
}
