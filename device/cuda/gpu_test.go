package cuda

import (
	"errors"
	flags "flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"testing"

	"spillway/device"
	"spillway/dtype"
	"spillway/executor"
	"spillway/graph"
	"spillway/internal/tiny"
	"spillway/op"
	"spillway/planner"
	"spillway/planner/strategy"
	thisrig "spillway/rig"
)

// What tests on the GPU show beyond conformance.

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

// askAll prepares the kernels of all cases the GPU has some for.
func askAll(t *testing.T, d *Device) {
	t.Helper()
	for _, precision := range []dtype.Type{dtype.F32, dtype.BF16} {
		for _, c := range op.Cases(precision) {
			_, err := d.Kernel(c.Call)
			var none *device.NoKernelError
			if err != nil && !errors.As(err, &none) {
				t.Fatal(err)
			}
		}
	}
}

// The code of all kernels fits into what is kept free for it.
func TestReserveIsEnough(t *testing.T) {
	d := openGPU(t, Options{})
	defer d.Close()
	before := freeOn(t, d)
	askAll(t, d)
	loaded := before - freeOn(t, d)
	t.Logf("all kernels take %d MiB", loaded>>20)
	if loaded > reserve {
		t.Errorf("the kernels took %d bytes, %d are reserved", loaded, int64(reserve))
	}
}

// Once its kernels were asked for, what the driver will count of the GPU is known to
// its pages: also after queues, first launches and page-locked memory.
func TestFootprintIsWhatTheDriverCounts(t *testing.T) {
	d := openGPU(t, Options{})
	defer d.Close()
	const gpu, host = 3<<30 + 12345, 5 << 30
	calls := matmulsToTry(t, d)
	expected := d.Footprint(gpu, host)
	note := func(what string) (taken int64) {
		free, total, err := d.Memory()
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%9d KiB taken with %s", (total-free)>>10, what)
		return total - free
	}
	note("the kernels asked for")
	m, err := d.Alloc(gpu)
	h, bad := d.HostAlloc(host)
	q, worse := d.Queue("compute")
	if err := errors.Join(err, bad, worse); err != nil {
		t.Fatal(err)
	}
	note("memory and a queue")
	for k, l := range calls {
		l.Workspace = device.Buffer{Memory: m, Offset: 2 << 30, Bytes: k.Workspace()}
		for i := range l.Buffers {
			l.Buffers[i].Memory, l.Buffers[i].Offset = m, int64(i)*(512<<20)
		}
		if err := errors.Join(q.Launch(k, l), q.Sync()); err != nil {
			t.Fatal(err)
		}
	}
	counted := note(fmt.Sprintf("%d matmuls run", len(calls)))
	if off := float64(expected-counted) / float64(counted); off < 0 || off > 0.02 {
		t.Errorf("the driver counts %d bytes, %d were expected: off by %.2f%%", counted, expected, 100*off)
	}
	if err := errors.Join(q.Close(), m.Free(), h.Free()); err != nil {
		t.Error(err)
	}
}

// matmulsToTry are kernels of matmuls of many sizes, with launches that lack memory.
func matmulsToTry(t *testing.T, d *Device) map[device.Kernel]*device.Launch {
	t.Helper()
	list := map[device.Kernel]*device.Launch{}
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
				list[k] = &device.Launch{Buffers: slices.Repeat([]device.Buffer{{Bytes: square.Bytes()}}, 3)}
			}
		}
	}
	return list
}

// flatIterations are run to see that nothing grows.
var flatIterations = flags.Int("iterations", 1000, "how many iterations must leave memory and handles flat")

// Iterations take nothing from the GPU, the heap or the system.
func TestIterationsStayFlat(t *testing.T) {
	d := openGPU(t, Options{})
	defer d.Close()
	m := tiny.Model(t, tiny.Llama, graph.Config{MicroBatchSize: 2, Seq: 16, Task: graph.Train, DType: dtype.BF16})
	site, goal := tiny.Site(64<<20), tiny.AdamW(2, true)
	site.Kernels, goal.Master = d, true
	p, err := planner.Build(m, goal, site, strategy.Uniform(true, true, strategy.SaveNone, 2))
	if err != nil {
		t.Fatal(err)
	}
	e, err := executor.New(p, []device.Device{d})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if err := e.WriteConstants(); err != nil {
		t.Fatal(err)
	}
	fillBatch(t, e, 61, 1)
	run := func(n int) {
		for i := range n {
			iterateOnce(t, e, uint64(i))
		}
	}
	run(200)
	before := takenBy(t, d)
	run(*flatIterations)
	after := takenBy(t, d)
	t.Logf("%d iterations: %+v before, %+v after", *flatIterations, before, after)
	if after.gpu > before.gpu || after.handles > before.handles || after.files > before.files {
		t.Errorf("something of the GPU or the system went: %+v before, %+v after", before, after)
	}
	if grown := after.resident - before.resident; grown > 4<<20 {
		t.Errorf("the process has grown by %d bytes", grown)
	}
	if per := (after.allocations - before.allocations) / uint64(*flatIterations); per > 8 {
		t.Errorf("%d allocations on the heap per iteration", per)
	}
}

// taken is what a process holds.
type taken struct {
	gpu, resident  int64 // bytes of the GPU, and of physical memory with what is page-locked
	handles, files int
	allocations    uint64
}

func takenBy(t *testing.T, d *Device) (n taken) {
	t.Helper()
	runtime.GC()
	free, total, err := d.Memory()
	resident, bad := thisrig.Resident()
	open, worse := os.ReadDir("/proc/self/fd")
	if err := errors.Join(err, bad, worse); err != nil {
		t.Fatal(err)
	}
	var heap runtime.MemStats
	runtime.ReadMemStats(&heap)
	d.mu.Lock()
	defer d.mu.Unlock()
	return taken{total - free, resident, len(d.events) + len(d.queues) + len(d.live) + len(d.gemms), len(open), heap.Mallocs}
}
