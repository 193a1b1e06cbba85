package cuda

import (
	"os"
	"path/filepath"
	"testing"

	"spillway/device"
	"spillway/device/devicetest"
	"spillway/dtype"
	"spillway/op"
	"spillway/optim"
)

// openGPU opens the first GPU, or skips. Kernels are compiled once per machine.
func openGPU(t testing.TB, o Options) *Device {
	t.Helper()
	o.SearchPaths, o.Cache = searchPaths(), filepath.Join(os.TempDir(), "spillway-kernels")
	d, err := Open(o)
	if err != nil {
		t.Skipf("no GPU to try: %v", err)
	}
	return d
}

// bound is that of careful kernels, but for Muon's matrices: they are made orthogonal in bf16, as PyTorch does it, where
// the reference does it in f64. What that changes is held to PyTorch's numbers by TestMuonStepsAsPyTorch.
func bound(c op.Case, output int) devicetest.Limit {
	limit := devicetest.Bound(c, output)
	if c.Call.Kind == optim.Muon && len(c.Call.In) == 4 && output != 1 {
		limit.Max, limit.NMSE = max(limit.Max, 4e-3), max(limit.NMSE, 1e-5)
	}
	return limit
}

func TestConformance(t *testing.T) {
	openGPU(t, Options{}).Close()
	devicetest.Run(t, func(t *testing.T) device.Device { return openGPU(t, Options{}) },
		devicetest.Options{DTypes: []dtype.Type{dtype.F32, dtype.BF16, dtype.F16}, Complete: true, Bound: bound})
}

// A device configured to round to tf32 does so in matmuls and attention of f32, and nowhere
// else.
func TestTF32(t *testing.T) {
	openGPU(t, Options{}).Close()
	rounds := map[op.Kind]bool{op.MatMul: true, op.LinearPlus: true, op.Conv: true, op.ConvInput: true, op.ConvWeight: true, op.Attention: true, op.AttentionGrad: true, op.LinearCrossEntropy: true, op.LinearCrossEntropyGrad: true,
		op.NormGated: true, op.NormHeads: true}
	rounded := func(c op.Case, output int) devicetest.Limit {
		limit := bound(c, output)
		if rounds[c.Call.Kind] {
			limit.Max, limit.NMSE = max(limit.Max, 4e-3), max(limit.NMSE, 1.3e-6) // of 10 bits of fraction
		}
		return limit
	}
	devicetest.Run(t, func(t *testing.T) device.Device { return openGPU(t, Options{TF32: true}) },
		devicetest.Options{DTypes: []dtype.Type{dtype.F32}, Complete: true, Bound: rounded})
}

// A share of the GPU with a small limit gives exactly that.
func TestLimit(t *testing.T) {
	openGPU(t, Options{}).Close()
	devicetest.Run(t, func(t *testing.T) device.Device { return openGPU(t, Options{Share: 4, Limit: 16 << 20}) }, devicetest.Options{Bound: bound})
}
