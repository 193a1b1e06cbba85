package cpu

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"spillway/device"
	"spillway/dtype"
	"spillway/internal/offheap"
	"spillway/op"
	"spillway/shape"
)

// workbench is a call with memory of its own on a device.
type workbench struct {
	kernel device.Kernel
	launch device.Launch
	memory device.Memory
}

// place puts the operands and outputs of a case into one memory.
func place(t testing.TB, d device.Device, c op.Case) *workbench {
	t.Helper()
	k, err := d.Kernel(c.Call)
	if err != nil {
		t.Fatal(err)
	}
	in := c.Operands()
	arrays := append(in, c.Outputs(in)...)
	size := up(k.Workspace())
	for _, a := range arrays {
		size += up(a.Type.Bytes())
	}
	m, err := d.Alloc(size)
	if err != nil {
		t.Fatal(err)
	}
	w := &workbench{kernel: k, memory: m, launch: device.Launch{Workspace: device.Buffer{Memory: m, Bytes: k.Workspace()}, Args: &c.Args}}
	at := up(k.Workspace())
	for i, a := range arrays {
		b := device.Buffer{Memory: m, Offset: at, Bytes: a.Type.Bytes()}
		if p := c.Call.InPlace(); i >= len(in) && i-len(in) < len(p) {
			b = w.launch.Buffers[p[i-len(in)]]
		}
		raw, err := a.Encode()
		if err != nil {
			t.Fatal(err)
		}
		copy(b.Host(), raw)
		w.launch.Buffers = append(w.launch.Buffers, b)
		at += up(b.Bytes)
	}
	return w
}

func up(n int64) int64 { return (n + alignment - 1) / alignment * alignment }

func openQueue(t testing.TB, d device.Device) device.Queue {
	t.Helper()
	q, err := d.Queue("compute")
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Every op gives the same bits with one worker as with three.
func TestThreadsDoNotChangeBits(t *testing.T) {
	results := map[int]map[string][]byte{}
	for _, threads := range []int{1, 3} {
		d := Open(Options{Threads: threads, Limit: 64 << 20})
		q, outputs := openQueue(t, d), map[string][]byte{}
		for _, c := range op.Cases(dtype.F32) {
			if c.Call.Kind.Fused() { // the CPU has what they stand for
				continue
			}
			w := place(t, d, c)
			must(t, q.Launch(w.kernel, &w.launch))
			must(t, q.Sync())
			var out []byte
			for _, b := range w.launch.Buffers[len(c.Call.In):] {
				out = append(out, b.Host()...)
			}
			outputs[c.Name] = out
			must(t, w.memory.Free())
		}
		results[threads] = outputs
		must(t, q.Close())
		must(t, d.Close())
	}
	for name, one := range results[1] {
		if !bytes.Equal(one, results[3][name]) {
			t.Errorf("%s differs between one worker and three", name)
		}
	}
}

// A launch, a copy and an event allocate nothing, whatever the op.
func TestNothingIsAllocated(t *testing.T) {
	d := Open(Options{Threads: 2, Limit: 256 << 20})
	q := openQueue(t, d)
	e, err := d.Event()
	must(t, err)
	var benches []*workbench
	seen := map[op.Kind]bool{}
	for _, c := range op.Cases(dtype.F32) {
		if !c.Large && seen[c.Call.Kind] || c.Call.Kind.Fused() {
			continue
		}
		seen[c.Call.Kind] = true
		benches = append(benches, place(t, d, c))
	}
	round := func() {
		for _, w := range benches {
			must(t, q.Launch(w.kernel, &w.launch))
			b := w.launch.Buffers[0]
			must(t, q.Copy(b, b))
			must(t, q.Record(e))
			must(t, q.Wait(e))
		}
		must(t, q.Sync())
	}
	round()
	n := testing.AllocsPerRun(3, round)
	for try := 0; n >= 1 && try < 20; try++ { // the runtime may have started threads meanwhile
		n = testing.AllocsPerRun(3, round)
	}
	if n >= 1 {
		t.Errorf("%v allocations for %d launches", n, len(benches))
	}
	for _, w := range benches {
		must(t, w.memory.Free())
	}
	must(t, q.Close())
	must(t, d.Close())
}

// What goes wrong in a kernel is an error of Sync that names the call, once.
func TestFailingKernel(t *testing.T) {
	d := Open(Options{Threads: 2})
	q := openQueue(t, d)
	bad := broken(d)
	bad.call = op.Call{Kind: op.Scale}
	must(t, q.Launch(bad, &device.Launch{}))
	err := q.Sync()
	if err == nil || !strings.Contains(err.Error(), "scale()") || !strings.Contains(err.Error(), "broken") {
		t.Errorf("Sync gives %v, want the call and the cause", err)
	}
	if err := q.Sync(); err != nil {
		t.Errorf("reported again: %v", err)
	}
	must(t, q.Close())
	must(t, d.Close())
}

func TestMemoryIsGivenBack(t *testing.T) {
	before := offheap.Mapped()
	d := Open(Options{Threads: 1, Limit: 1 << 20})
	if _, err := d.Alloc(1000); err != nil {
		t.Fatal(err)
	}
	if _, err := d.HostAlloc(1000); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); !errors.Is(err, device.ErrLeak) {
		t.Errorf("Close gives %v, want a leak", err)
	}
	if now := offheap.Mapped(); now != before {
		t.Errorf("%d bytes are still mapped after Close", now-before)
	}
	if _, err := d.Alloc(10); err == nil {
		t.Error("a closed device gives memory")
	}
	if _, err := d.Queue("late"); err == nil {
		t.Error("a closed device gives a queue")
	}
}

func TestConfiguration(t *testing.T) {
	o, err := parse("threads=3,limit=2GiB")
	if want := (Options{Threads: 3, Limit: 2 << 30}); err != nil || o != want {
		t.Errorf("got %+v, %v", o, err)
	}
	for _, bad := range []string{"threads=0", "threads=x", "limit=huge", "colour=red", "threads"} {
		if _, err := parse(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
	d, err := device.Open("cpu:threads=1", device.Options{})
	must(t, err)
	if d.Info().Limit < 1<<28 {
		t.Errorf("the limit is %d bytes", d.Info().Limit)
	}
	must(t, d.Close())
}

func TestNoKernel(t *testing.T) {
	d := Open(Options{Threads: 1})
	defer d.Close()
	f8 := op.Type{DType: dtype.F8E4M3, Shape: shape.Of(4, 4)}
	call, err := op.Make(op.MatMul, op.Attr{}, f8, f8)
	must(t, err)
	_, err = d.Kernel(call)
	var none *device.NoKernelError
	if !errors.As(err, &none) || !strings.Contains(none.Reason, "f8e4m3") {
		t.Errorf("got %v", err)
	}
}
