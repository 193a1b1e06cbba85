package cuda

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

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
	if took := before - loaded - freeOn(t, d); took < size-page || took > size+page {
		t.Errorf("an allocation of %d bytes took %d", int64(size), took)
	}
	if err := m.Free(); err != nil {
		t.Error(err)
	}
}

// What the driver takes, stage by stage: context and library, kernels, queues, first
// launches, page-locked memory.
func TestWhatTheDriverTakes(t *testing.T) {
	start := time.Now()
	d := openCard(t, Options{})
	defer d.Close()
	last := freeOn(t, d)
	note := func(what string) {
		now := freeOn(t, d)
		t.Logf("%8.1f ms  %+7d KiB  %s", float64(time.Since(start).Microseconds())/1000, (last-now)>>10, what)
		last, start = now, time.Now()
	}
	_, total, err := d.Memory()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d KiB taken after opening", (total-last)>>10)
	for _, precision := range []dtype.Type{dtype.BF16, dtype.F32} {
		for _, c := range op.Cases(precision) {
			if _, err := d.Kernel(c.Call); err != nil {
				t.Fatal(err)
			}
		}
		note("kernels of all cases of " + precision.String())
	}
	q, err := d.Queue("compute")
	if err != nil {
		t.Fatal(err)
	}
	note("a queue")
	for _, name := range []string{"in", "out"} {
		other, err := d.Queue(name)
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
	}
	note("two more")
	m, err := d.Alloc(1 << 30)
	if err != nil {
		t.Fatal(err)
	}
	note("1 GiB")
	for _, precision := range []dtype.Type{dtype.BF16, dtype.F32} {
		for _, side := range []int64{64, 256, 512, 1024, 2048, 4096} {
			for _, a := range []op.Attr{{TransB: true}, {}, {TransA: true}} {
				square := op.Type{DType: precision, Shape: []int64{side, side}}
				c, err := op.Make(op.MatMul, a, square, square)
				if err != nil {
					t.Fatal(err)
				}
				k, err := d.Kernel(c)
				if err != nil {
					t.Fatal(err)
				}
				l := &device.Launch{Workspace: device.Buffer{Memory: m, Offset: 900 << 20, Bytes: k.Workspace()}}
				for i := range 3 {
					l.Buffers = append(l.Buffers, device.Buffer{Memory: m, Offset: int64(i) * 300 << 20, Bytes: square.Bytes()})
				}
				if err := errors.Join(q.Launch(k, l), q.Sync()); err != nil {
					t.Fatal(err)
				}
				note(fmt.Sprintf("product of %v %d %v%v, scratch %d", precision, side, a.TransA, a.TransB, k.Workspace()))
			}
		}
	}
	for _, size := range []int64{1 << 20, 1 << 30, 8 << 30} {
		h, err := d.HostAlloc(size)
		if err != nil {
			t.Fatal(err)
		}
		note(fmt.Sprintf("%d MiB of the host", size>>20))
		if err := h.Free(); err != nil {
			t.Fatal(err)
		}
		note("freed")
	}
	if err := errors.Join(m.Free(), q.Close()); err != nil {
		t.Fatal(err)
	}
	note("all freed")
	tinyRun(t, d, dtype.BF16, planner.Alike(false, false, planner.KeepAll, 1))
	note("a tiny training")
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
