package cuda

import (
	"errors"
	"math"
	"slices"
	"testing"

	"spillway/device"
	"spillway/device/cuda/driver"
	"spillway/dtype"
	"spillway/executor"
	"spillway/graph"
	"spillway/internal/tiny"
	"spillway/op"
	"spillway/planner"
	"spillway/planner/strategy"
	"spillway/shape"
)

// clip is a call that reads a number of the iteration: the greatest norm.
func (r *rig) clip(t *testing.T) (device.Kernel, *device.Launch) {
	t.Helper()
	c, err := op.Make(op.ClipScale, op.Attr{}, op.Type{DType: dtype.F64, Shape: shape.Of(4)})
	if err != nil {
		t.Fatal(err)
	}
	k, err := r.d.Kernel(c)
	if err != nil {
		t.Fatal(err)
	}
	return k, &device.Launch{Args: &op.Args{}, Buffers: []device.Buffer{{Memory: r.gpu, Bytes: 32}, {Memory: r.gpu, Offset: 1024, Bytes: c.Out[0].Bytes()}}}
}

// What two queues are given is captured together and repeated with one call, with the
// numbers as they are then.
func TestCapture(t *testing.T) {
	r := newRig(t, Options{})
	in, err := r.d.Queue("in")
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	plain, l := r.scale(t)
	clip, numbers := r.clip(t)
	half := func(m device.Memory) device.Buffer { return device.Buffer{Memory: m, Bytes: 64} }
	n := len(r.log)
	run, err := r.d.Capture([]device.Queue{r.q, in}, func() error {
		return errors.Join(in.Copy(half(r.gpu), half(r.host)), r.q.Launch(plain, l), r.q.Launch(clip, numbers))
	})
	if err != nil {
		t.Fatal(err)
	}
	quiet := func(n int) []string {
		return slices.DeleteFunc(r.since(n), func(s string) bool { return s == "SetCurrent" || s == "NewEvent" })
	}
	want := []string{"BeginCapture", "Record", "WaitEvent", "Copy", "Launch", "Launch", "LastNode", "Record", "WaitEvent", "EndCapture", "Instantiate"}
	if got := quiet(n); !slices.Equal(got, want) {
		t.Errorf("calls %v, want %v", got, want)
	}
	for _, norm := range []float32{1, 2} {
		numbers.Args.Scalars = op.ClipScalars(norm, 0)
		n = len(r.log)
		if err := run.Launch(); err != nil {
			t.Fatal(err)
		}
		if got := quiet(n); !slices.Equal(got, []string{"SetNode", "Replay"}) {
			t.Errorf("repeating calls %v", got)
		}
		if !slices.Contains(r.slots, uint64(math.Float32bits(norm))) {
			t.Errorf("parameters %x hold no %v", r.slots, norm)
		}
	}
	if err := run.Close(); err != nil {
		t.Error(err)
	}
}

// Whatever fails, everything is given back (openFake looks), and queues are as before.
func TestCaptureThatFails(t *testing.T) {
	for _, name := range []string{"BeginCapture", "Record", "WaitEvent", "Launch", "LastNode", "EndCapture", "Instantiate"} {
		for code, cannot := range map[int]bool{driver.CaptureUnsupported: true, driver.IllegalAddress: false} {
			r := newRig(t, Options{})
			in, err := r.d.Queue("in")
			if err != nil {
				t.Fatal(err)
			}
			clip, numbers := r.clip(t)
			r.failing(name, &driver.Error{Call: name, Code: code})
			_, err = r.d.Capture([]device.Queue{r.q, in}, func() error { return r.q.Launch(clip, numbers) })
			if err == nil || errors.Is(err, device.ErrNotCapturable) != cannot {
				t.Errorf("%s fails with %d: %v", name, code, err)
			}
			r.failing(name, nil)
			if err := errors.Join(r.q.Launch(clip, numbers), in.Close()); err != nil {
				t.Errorf("after %s failed: %v", name, err)
			}
		}
	}
}

func TestCaptureOfOtherQueues(t *testing.T) {
	r, other := newRig(t, Options{}), newRig(t, Options{})
	if _, err := r.d.Capture([]device.Queue{other.q}, func() error { return nil }); !errors.Is(err, device.ErrNotCapturable) {
		t.Errorf("got %v", err)
	}
}

// issued is a device that cannot repeat.
type issued struct{ device.Device }

// On the GPU: iterations of a tiny model are repeated, and give the bits of those that
// are issued.
func TestRepeatedIsIssued(t *testing.T) {
	gpu := openGPU(t, Options{})
	defer gpu.Close()
	choose := strategy.Uniform(true, true, strategy.SaveNone, 2)
	repeated, plain := tinyRun(t, gpu, dtype.BF16, choose), tinyRun(t, issued{gpu}, dtype.BF16, choose)
	if !slices.Equal(repeated, plain) {
		t.Errorf("losses %v repeated, %v issued", repeated, plain)
	}
}

// small starts a tiny model on a GPU.
func small(t testing.TB, gpu *Device, dev device.Device) *executor.Executor {
	t.Helper()
	m := tiny.Model(t, tiny.Llama, graph.Config{MicroBatchSize: 2, Seq: 16, Task: graph.Train, DType: dtype.BF16})
	site, goal := tiny.Site(64<<20), tiny.AdamW(1, true)
	site.Kernels, goal.Master = gpu, true
	p, err := planner.Build(m, goal, site, strategy.Uniform(false, false, strategy.SaveAll, 1))
	if err != nil {
		t.Fatal(err)
	}
	e, err := executor.New(p, []device.Device{dev})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.WriteConstants(); err != nil {
		t.Fatal(err)
	}
	fillBatch(t, e, 61, 1)
	return e
}

// Repeating takes no memory of the GPU that a plan does not know of.
func TestCaptureTakesNoMemory(t *testing.T) {
	gpu := openGPU(t, Options{})
	defer gpu.Close()
	e := small(t, gpu, gpu)
	defer e.Close()
	free := func(from, to uint64) int64 {
		for i := from; i < to; i++ {
			iterateOnce(t, e, i)
		}
		return freeOn(t, gpu)
	}
	issued, repeated := free(0, 1), free(1, 6)
	if !e.ReplaysGraph() {
		t.Fatal("nothing was repeated")
	}
	if repeated < issued {
		t.Errorf("%d bytes more were taken", issued-repeated)
	}
}

// Iterations of a tiny model, repeated and issued.
func BenchmarkSmallIterations(b *testing.B) {
	gpu := openGPU(b, Options{})
	defer gpu.Close()
	for name, dev := range map[string]device.Device{"repeated": gpu, "issued": issued{gpu}} {
		b.Run(name, func(b *testing.B) {
			e := small(b, gpu, dev)
			defer e.Close()
			for i := range uint64(4) {
				iterateOnce(b, e, i)
			}
			for b.Loop() {
				iterateOnce(b, e, 4)
			}
			b.ReportMetric(float64(e.Counters().Launches/e.Counters().Iterations), "launches")
			if e.ReplaysGraph() != (name == "repeated") {
				b.Errorf("repeats: %v", e.ReplaysGraph())
			}
		})
	}
}

// The handle of an event that a graph has recorded is not given to others, who would wait for an event that only its graph
// knows; it is closed before the next capture.
func TestEventsOfGraphsAreNotReused(t *testing.T) {
	r := newRig(t, Options{})
	record := func() *event {
		e, err := r.d.Event()
		if err == nil {
			err = r.q.Record(e)
		}
		if err != nil {
			t.Fatal(err)
		}
		return e.(*event)
	}
	var inside *event
	capture := func() {
		t.Helper()
		run, err := r.d.Capture([]device.Queue{r.q}, func() error {
			inside = record()
			return nil
		})
		if err == nil {
			err = run.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	capture()
	outside := record()
	r.d.spare.add(outside.recorded)
	r.d.spare.add(inside.recorded)
	next, other := record(), record()
	if next.handle != outside.handle || other.handle == inside.handle {
		t.Errorf("handles %d and %d follow %d of a queue and %d of a graph", next.handle, other.handle, outside.handle, inside.handle)
	}
	n := len(r.log)
	capture()
	if closed := slices.Index(r.since(n), "CloseEvent"); closed < 0 || closed > slices.Index(r.since(n), "BeginCapture") {
		t.Errorf("calls %v", r.since(n))
	}
}
