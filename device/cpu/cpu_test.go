package cpu

import (
	"testing"

	"spillway/device"
	"spillway/device/devicetest"
	"spillway/dtype"
)

func TestConformance(t *testing.T) {
	open := func(t *testing.T) device.Device { return Open(Options{Threads: 2, Limit: 64 << 20}) }
	devicetest.Run(t, open, devicetest.Options{DTypes: []dtype.Type{dtype.F32, dtype.BF16, dtype.F16}, Complete: true})
}
