package rig

import (
	"testing"
	"testing/synctest"
	"time"

	"spillway/device"
	"spillway/device/cpu"
	"spillway/dtype"
	"spillway/op"
	"spillway/optim"
)

// Weights that a cache would hold are read from several places, as they are in a run; what was
// made just before is where it was. All stays within the memory there is.
func TestWeightsAreCold(t *testing.T) {
	dev := cpu.Open(cpu.Options{Threads: 1})
	defer dev.Close()
	b, err := newBench(dev)
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	matmul := callOf(t, op.MatMul, op.Attr{TransB: true}, of(dtype.F32, 4, 64), of(dtype.F32, 256, 64))
	each := matmul.In[1].Bytes()
	for _, c := range []struct {
		cold, room int64
		launches   int
	}{{0, 0, 1}, {4 * each, 0, 5}, {4 * each, 4 * each, 3}, {4 * each, each + 20<<10, 1}, {each, 0, 1}} {
		b.cold, b.room = c.cold, c.room
		w, err := b.prepare(matmul)
		if err != nil {
			t.Fatal(err)
		}
		if len(w.launches) != c.launches {
			t.Errorf("%+v: %d launches", c, len(w.launches))
		}
		seen := map[int64]bool{}
		for _, l := range w.launches {
			seen[l.Buffers[1].Offset] = true
			if l.Buffers[0] != w.launches[0].Buffers[0] || l.Buffers[2] != w.launches[0].Buffers[2] {
				t.Errorf("%+v: activations move too", c)
			}
			if string(l.Buffers[1].Host()) != string(w.launches[0].Buffers[1].Host()) {
				t.Errorf("%+v: other weights", c)
			}
			if end := l.Buffers[1].Offset + l.Buffers[1].Bytes; c.room > 0 && end > c.room {
				t.Errorf("%+v: weights end at %d", c, end)
			}
		}
		if len(seen) != c.launches {
			t.Errorf("%+v: weights in %d places", c, len(seen))
		}
	}
	update, err := plain[optim.Adam](dtype.F32, 2, 128)
	if err != nil {
		t.Fatal(err)
	}
	b.cold, b.room = 1<<20, 0
	w, err := b.prepare(update)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range w.launches {
		for out, in := range update.InPlace() {
			if l.Buffers[len(update.In)+out] != l.Buffers[in] {
				t.Fatal("an update is no longer in place")
			}
		}
	}
}

// switching is a device on which a kernel takes longer after another one than after itself, to
// launch and to run.
type switching struct {
	device.Device
	queue *switchingQueue
}

const again, another = 100 * time.Microsecond, 500 * time.Microsecond

type switchingQueue struct {
	device.Queue
	last     device.Kernel
	captured []device.Kernel
	captures bool
}

func (s *switching) Queue(string) (device.Queue, error) { return s.queue, nil }

func (q *switchingQueue) Launch(k device.Kernel, _ *device.Launch) error {
	if q.captures {
		q.captured = append(q.captured, k)
		return nil
	}
	q.run(k)
	return nil
}

// run takes its time, of a clock that nothing else moves.
func (q *switchingQueue) run(k device.Kernel) {
	takes := another
	if q.last == k {
		takes = again
	}
	q.last = k
	time.Sleep(takes)
}

func (s *switching) Capture(_ []device.Queue, issue func() error) (device.Graph, error) {
	s.queue.captures, s.queue.captured = true, nil
	err := issue()
	s.queue.captures = false
	return switchingGraph{s.queue}, err
}

type switchingGraph struct{ *switchingQueue }

func (g switchingGraph) Launch() error {
	for _, k := range g.captured {
		g.run(k)
	}
	return nil
}
func (g switchingGraph) Close() error                   { return nil }
func (q *switchingQueue) Copy(_, _ device.Buffer) error { return nil }
func (q *switchingQueue) Sync() error                   { return nil }
func (q *switchingQueue) Close() error                  { return nil }

// What calls take longer among others is measured, and counts for every call.
func TestCallsAmongOthersTakeLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := cpu.Open(cpu.Options{Threads: 1})
		defer inner.Close()
		times := newCallTimes(&switching{inner, &switchingQueue{}}, Options{})
		c := callOf(t, op.Add, op.Attr{}, of(dtype.F32, 8, 8), of(dtype.F32, 8, 8))
		took, ok := times.Time(c)
		if !ok || times.mixture == nil {
			t.Fatal("nothing was measured")
		}
		for _, extra := range []time.Duration{times.mixture.Device, times.mixture.Launch} {
			if extra != another-again {
				t.Errorf("calls take %v longer among others, want %v", extra, another-again)
			}
		}
		if took.Device != another || took.Launch != another {
			t.Errorf("%+v among others, want %v", took, another)
		}
		if err := times.close(); err != nil {
			t.Error(err)
		}
	})
}
