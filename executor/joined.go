package executor

import (
	"spillway/device"
	"spillway/graph"
)

// Joined are the kernels that devices have made of whole programs and updates, for the plans of one layout: a search times
// hundreds that have the same programs. Devices of one name must be alike.
type Joined struct {
	programs map[joinedProgram]device.Kernel
	updates  map[joinedPiece]device.Kernel
}

type joinedProgram struct {
	*graph.Program
	device string
}

type joinedPiece struct{ layout, device string }

// NewJoined has none yet.
func NewJoined() *Joined {
	return &Joined{map[joinedProgram]device.Kernel{}, map[joinedPiece]device.Kernel{}}
}

// program is the kernel of a program on a device that joins.
func (c *compiler) joinedProgram(on programOn, j device.Joiner) (device.Kernel, error) {
	key := joinedProgram{c.plan.Programs[on.program].Graph, c.plan.Devices[on.device].Name}
	if k, ok := c.known.programs[key]; ok {
		return k, nil
	}
	kernels, err := c.programKernels(on)
	if err != nil {
		return nil, err
	}
	k := j.Join(kernels)
	c.known.programs[key] = k
	return k, nil
}
