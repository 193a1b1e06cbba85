package strategy

import (
	"fmt"

	"spillway/plan"
)

// DiskOffload stores on disk what CPU offload stores in host memory.
var DiskOffload = &Strategy{
	Name:        "disk-offload",
	Title:       "disk offload",
	Doc:         "weights and optimizer state are stored on disk, some or all",
	Needs:       Needs{Disk: true},
	Constraints: Constraints{Weights: plan.OnDisk, State: plan.OnDisk},
	In:          func(c Choice) bool { return Count(c.OnDisk) > 0 },
	Describe: func(c Choice) string {
		return fmt.Sprintf("disk offload of %d of %d", Count(c.OnDisk), len(c.OnDisk))
	},
	Lines: func(f Facts) (list []Line) {
		if !f.Disk {
			return nil
		}
		all := f.Recomputing()[len(f.Recomputing())-1]
		list = []Line{onDisk(f, streaming(f, 2, all, 0))}
		if f.Training && !f.Alone {
			list = append(list, onDisk(f, streaming(f, 1, all, f.Blocks)))
		}
		return list
	},
}

// onDisk is the line along which more and more of what the last mix of another stores on
// the host is stored on the disk.
func onDisk(f Facts, line Line) Line {
	m := line.Mix(line.Size)
	return Line{f.Slabs, func(i int) Mix { m := m; m.OnDisk = i; return m }}
}
