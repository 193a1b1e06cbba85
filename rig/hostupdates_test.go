package rig

import (
	"testing"

	"spillway/dtype"
	"spillway/machine"
	"spillway/op"
	"spillway/optim"
	"spillway/quant"
)

// Updates of the CPU next to a GPU are measured in the types at hand, whatever their size, at two sizes for all; other
// calls are not.
func TestHostUpdatesAreMeasuredByTheirTypes(t *testing.T) {
	cache := t.TempDir()
	r := quickGPU(t, cache)
	calls := r.Machine.Devices[0].HostCalls.(machine.Updater).Updates(64 << 20)
	adam := func(n int64, w, g, m, v dtype.Type, to dtype.Type) op.Call {
		return callOf(t, optim.Adam, op.Attr{To: to}, of(w, n), of(g, n), of(m, n), of(v, n), of(dtype.F32, 2))
	}
	known := 0
	for _, make := range []func(n int64) op.Call{
		func(n int64) op.Call { return adam(n, dtype.F32, dtype.F32, dtype.F32, dtype.F32, dtype.Invalid) },
		func(n int64) op.Call { return adam(n, dtype.F32, dtype.BF16, dtype.F32, dtype.F32, dtype.BF16) },
		func(n int64) op.Call { return adam(n, dtype.BF16, dtype.BF16, dtype.BF16, dtype.BF16, dtype.Invalid) },
		func(n int64) op.Call { return adam(n, dtype.F32, dtype.BF16, quant.Dyn8, quant.UDyn8, dtype.BF16) },
		func(n int64) op.Call {
			return callOf(t, optim.Lion, op.Attr{}, of(dtype.F32, n), of(dtype.F32, n), of(dtype.F32, n), of(dtype.F32, 2))
		},
	} {
		known += 2
		for _, n := range []int64{100, 1 << 12, 5 << 20} {
			if took, ok := calls.Time(make(n)); !ok || took.Device <= 0 {
				t.Errorf("%v takes %v, %v", make(n), took, ok)
			}
		}
		if some := len(r.host.known); some != known {
			t.Errorf("%d measurements, want %d", some, known)
		}
	}
	if took, ok := calls.Time(callOf(t, op.Add, op.Attr{}, of(dtype.F32, 8), of(dtype.F32, 8))); ok {
		t.Errorf("an addition takes %v", took)
	}
	if err := calls.(machine.Releaser).Release(); err != nil || r.host.bench != nil {
		t.Errorf("what was measured with is held: %v", err)
	}
}
