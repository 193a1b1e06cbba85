package cpu

import (
	"testing"

	"spillway/device"
	"spillway/device/cpu/kernel"
	"spillway/device/devicetest"
	"spillway/dtype"
)

// The suite on every path of this CPU: assembly and plain Go.
func TestConformance(t *testing.T) {
	open := func(t *testing.T) device.Device { return Open(Options{Threads: 2, Limit: 64 << 20}) }
	for _, path := range kernel.Paths() {
		t.Run(path, func(t *testing.T) {
			before, err := kernel.Choose(path)
			must(t, err)
			defer kernel.Choose(before)
			devicetest.Run(t, open, devicetest.Options{
				DTypes:   []dtype.Type{dtype.F32, dtype.BF16, dtype.F16},
				Complete: true,
				Fail:     func(d device.Device, q device.Queue) error { return q.Launch(broken(d), &device.Launch{}) },
			})
		})
	}
}

// broken is a kernel that fails when it runs.
func broken(d device.Device) *preparedKernel {
	return &preparedKernel{device: d.(*Device), program: Program{Run: func(*kernel.Pool, *device.Launch) { panic("broken") }}}
}
