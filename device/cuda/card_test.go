package cuda

import (
	"runtime"
	"testing"

	"spillway/device"
	"spillway/dtype"
	"spillway/executor"
	"spillway/graph"
	"spillway/internal/tiny"
	"spillway/op"
	"spillway/planner"
)

// What tests on the card show beyond conformance.

func freeOn(t *testing.T, d *Device) int64 {
	t.Helper()
	if err := d.enter(); err != nil {
		t.Fatal(err)
	}
	defer d.leave()
	free, _, err := d.lib.CUDA.MemoryInfo()
	if err != nil {
		t.Fatal(err)
	}
	return free
}

// The code of all kernels fits into what is kept free for it, and an allocation takes
// from the card what was asked for, up to its pages.
func TestReserveIsEnough(t *testing.T) {
	d := openCard(t, Options{})
	defer d.Close()
	before := freeOn(t, d)
	for _, precision := range []dtype.Type{dtype.F32, dtype.BF16} {
		for _, c := range op.Cases(precision) {
			if _, err := d.Kernel(c.Call); err != nil {
				t.Fatal(err)
			}
		}
	}
	loaded := before - freeOn(t, d)
	t.Logf("all kernels take %d MiB", loaded>>20)
	if loaded > reserve {
		t.Errorf("the kernels took %d bytes, %d are reserved", loaded, int64(reserve))
	}
	const size = 3<<30 + 12345
	m, err := d.Alloc(size)
	if err != nil {
		t.Fatal(err)
	}
	const page = 2 << 20
	if took := before - loaded - freeOn(t, d); took < size-page || took > size+page {
		t.Errorf("an allocation of %d bytes took %d", int64(size), took)
	}
	if err := m.Free(); err != nil {
		t.Error(err)
	}
}

// A thousand iterations take nothing from the card, the heap or the system.
func TestIterationsStayFlat(t *testing.T) {
	d := openCard(t, Options{})
	defer d.Close()
	m := tiny.Model(t, tiny.Llama, graph.Config{Rows: 2, Seq: 16, Task: graph.Train, DType: dtype.BF16})
	site, goal := tiny.Site(64<<20), tiny.AdamW(2, true)
	site.Kernels, goal.Master = d, true
	p, err := planner.Build(m, goal, site, planner.Alike(true, true, planner.KeepNone, 2))
	if err != nil {
		t.Fatal(err)
	}
	e, err := executor.New(p, []device.Device{d})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if err := e.Prepare(); err != nil {
		t.Fatal(err)
	}
	fillBatch(t, e, 61, 1)
	run := func(n int) {
		for i := range n {
			iterateOnce(t, e, uint64(i))
		}
	}
	run(20)
	free := freeOn(t, d)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	run(1000)
	runtime.ReadMemStats(&after)
	if now := freeOn(t, d); now < free {
		t.Errorf("%d bytes of the card went", free-now)
	}
	if per := (after.Mallocs - before.Mallocs) / 1000; per > 8 {
		t.Errorf("%d allocations on the heap per iteration", per)
	}
}
