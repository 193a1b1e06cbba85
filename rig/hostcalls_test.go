package rig

import (
	"testing"

	"spillway/dtype"
	"spillway/machine"
	"spillway/op"
	"spillway/quant"
)

// What the CPU takes next to a GPU is measured once, for matmuls of few rows within the memory there is, and
// stored; what is stored and does not hold any more is measured again.
func TestHostCallsAreMeasured(t *testing.T) {
	cache := t.TempDir()
	plain := callOf(t, op.MatMul, op.Attr{TransB: true}, of(dtype.BF16, 1, 1, 512), of(dtype.BF16, 1024, 512))
	packed := callOf(t, op.QuantizedMatmul, op.Attr{}, of(dtype.BF16, 1, 2, 512), of(quant.NF4, 64, 512))
	many := callOf(t, op.MatMul, op.Attr{TransB: true}, of(dtype.BF16, 1, 65, 64), of(dtype.BF16, 64, 64))
	const room = 8 << 20
	r := quickGPU(t, cache)
	calls := r.Machine.Devices[0].HostCalls.Within(room)
	took, ok := calls.Time(plain)
	if again, _ := calls.Time(plain); !ok || took.Device <= 0 || again != took {
		t.Errorf("%v, %v, then %v", took, ok, again)
	}
	if took, ok := calls.Time(packed); !ok || took.Device <= 0 {
		t.Errorf("packed: %v, %v", took, ok)
	}
	if took, ok := calls.Time(callOf(t, op.RMSNorm, op.Attr{Eps: 1e-5}, of(dtype.BF16, 1, 1, 64), of(dtype.BF16, 64))); !ok || took.Device <= 0 {
		t.Errorf("a norm: %v, %v", took, ok)
	}
	if _, ok := calls.Time(many); ok {
		t.Error("a matmul of many rows is the GPU's")
	}
	if _, ok := r.Machine.Devices[0].HostCalls.Within(1 << 10).Time(callOf(t, op.MatMul, op.Attr{TransB: true}, of(dtype.BF16, 1, 1, 512), of(dtype.BF16, 2048, 512))); ok {
		t.Error("more memory was taken than there is")
	}
	if share := r.host.LinkShare(); share <= 0 || share > 1 {
		t.Errorf("the link carries %v of its rate", share)
	}
	if err := calls.(machine.Releaser).Release(); err != nil {
		t.Error(err)
	}
	if now, _ := r.Devices[0].(interface{ Allocated() (int64, int64) }).Allocated(); now != 0 {
		t.Errorf("%d bytes are left", now)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	next := quickGPU(t, cache)
	if stored := next.host.cached; len(stored) < 2 {
		t.Fatalf("stored: %v", stored)
	}
	const busy = 1e6 // more than two measurements differ by, whatever else the computer does
	for key, was := range next.host.cached {
		was.Device *= busy
		next.host.cached[key] = was
	}
	if now, ok := next.Machine.Devices[0].HostCalls.Within(room).Time(plain); !ok || now.Device > busy/10*took.Device || next.host.cached != nil {
		t.Errorf("%v where it takes %v; still stored: %v", now, took, next.host.cached)
	}
}

// A large last cache holds much of what is little larger than it: weights are read from several times as much.
func TestColdBytes(t *testing.T) {
	for cache, want := range map[int64]int64{32 << 20: 512 << 20, 300 << 20: 1200 << 20, 2 << 30: 4 << 30} {
		if got := coldOf(cache); got != want {
			t.Errorf("with a cache of %d bytes calls read from %d, want %d", cache, got, want)
		}
	}
}
