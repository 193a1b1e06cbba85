package cuda

import (
	"os"
	"path/filepath"
	"testing"

	"spillway/device"
	"spillway/device/devicetest"
	"spillway/dtype"
)

// openCard opens the first card, or skips. Kernels are compiled once per machine.
func openCard(t testing.TB, o Options) *Device {
	t.Helper()
	o.SearchPaths, o.Cache = searchPaths(), filepath.Join(os.TempDir(), "spillway-kernels")
	d, err := Open(o)
	if err != nil {
		t.Skipf("no card to try: %v", err)
	}
	return d
}

func TestConformance(t *testing.T) {
	openCard(t, Options{}).Close()
	devicetest.Run(t, func(t *testing.T) device.Device { return openCard(t, Options{}) },
		devicetest.Options{DTypes: []dtype.Type{dtype.F32, dtype.BF16, dtype.F16}, Complete: true})
}

// A share of the card with a small limit gives exactly that.
func TestLimit(t *testing.T) {
	openCard(t, Options{}).Close()
	devicetest.Run(t, func(t *testing.T) device.Device { return openCard(t, Options{Share: 4, Limit: 8 << 20}) }, devicetest.Options{})
}
