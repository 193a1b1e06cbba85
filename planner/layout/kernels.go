package layout

import (
	"encoding/json"
	"sync"

	"spillway/device"
	"spillway/op"
	"spillway/planner/goal"
)

// kernelCache remembers the scratch memory of calls, so that a search asks the
// device once per kind of call, and one call at a time.
type kernelCache struct {
	from goal.Kernels
	one  sync.Mutex
	made map[string]int64
}

type scratchOnly int64

func (s scratchOnly) Workspace() int64 { return int64(s) }

// Kernel asks the device, or answers from memory.
func (c *kernelCache) Kernel(call op.Call) (device.Kernel, error) {
	key, err := json.Marshal(call)
	if err != nil {
		return nil, err
	}
	c.one.Lock()
	defer c.one.Unlock()
	if n, ok := c.made[string(key)]; ok {
		return scratchOnly(n), nil
	}
	k, err := c.from.Kernel(call)
	if err != nil {
		return nil, err
	}
	c.made[string(key)] = k.Workspace()
	return k, nil
}
