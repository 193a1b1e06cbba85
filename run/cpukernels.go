package run

import (
	"fmt"
	"sync"

	"spillway/device"
	"spillway/op"
)

// cpuKernels are those of the CPU next to GPUs, asked for while planning. The CPU is opened when it is
// asked for the first time, and once.
type cpuKernels struct{}

var openCPU = sync.OnceValues(func() (device.Device, error) { return device.Open(cpuDevice, device.Options{}) })

// Kernel prepares a call.
func (cpuKernels) Kernel(call op.Call) (device.Kernel, error) {
	cpu, err := openCPU()
	if err != nil {
		return nil, fmt.Errorf("opening the CPU: %w", err)
	}
	return cpu.Kernel(call)
}
