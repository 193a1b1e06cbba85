package rig

import (
	"testing"
	"time"

	"spillway/device"
	"spillway/device/cpu"
	"spillway/dtype"
	"spillway/machine"
	"spillway/op"
)

// capturing is a CPU whose queue can be captured.
type capturing struct {
	device.Device
	queue *capturingQueue
}

type capturingQueue struct {
	device.Queue
	graph    *replayedLaunches // nil: nothing is captured
	launches int
	seen     map[*device.Launch]bool
}

type replayedLaunches struct {
	queue *capturingQueue
	list  []func() error
}

func (c *capturing) Queue(name string) (device.Queue, error) {
	q, err := c.Device.Queue(name)
	c.queue = &capturingQueue{Queue: q, seen: map[*device.Launch]bool{}}
	return c.queue, err
}

func (c *capturing) Capture(_ []device.Queue, issue func() error) (device.Graph, error) {
	g := &replayedLaunches{queue: c.queue}
	c.queue.graph = g
	defer func() { c.queue.graph = nil }()
	return g, issue()
}

func (q *capturingQueue) Launch(k device.Kernel, l *device.Launch) error {
	q.launches++
	q.seen[l] = true
	if q.graph != nil {
		q.graph.list = append(q.graph.list, func() error { return q.Queue.Launch(k, l) })
		return nil
	}
	return q.Queue.Launch(k, l)
}

func (g *replayedLaunches) Launch() error {
	for _, launch := range g.list {
		if err := launch(); err != nil {
			return err
		}
	}
	return nil
}

func (g *replayedLaunches) Close() error { return nil }

// block is a pass with weights, a batch of ids, a constant and scratch memory.
func block(t *testing.T, captured bool) machine.Pass {
	t.Helper()
	ids, table, x, w := of(dtype.I32, 16), of(dtype.F32, 10, 32), of(dtype.F32, 16, 32), of(dtype.F32, 32, 32)
	constant := make([]byte, x.Bytes())
	return machine.Pass{
		Calls: []machine.PassCall{
			{Call: callOf(t, op.Embedding, op.Attr{}, ids, table), Places: []int{0, 1, 2}},
			{Call: callOf(t, op.MatMul, op.Attr{TransB: true}, x, w), Places: []int{2, 3, 4}},
			{Call: callOf(t, op.Add, op.Attr{}, x, x), Places: []int{4, 5, 6}},
		},
		Places: []machine.PassPlace{
			{Bytes: ids.Bytes(), Shared: true}, {Bytes: table.Bytes()}, {Bytes: x.Bytes(), Scratch: true}, {Bytes: w.Bytes()},
			{Bytes: x.Bytes(), Scratch: true, Offset: x.Bytes()}, {Bytes: x.Bytes(), Shared: true, Data: constant}, {Bytes: x.Bytes(), Shared: true},
		},
		Scratch: 2 * x.Bytes(), Work: 2 * x.Bytes(), Captured: captured,
	}
}

// A pass is run with the calls where a plan has them: each with weights of its own, and all with the same batch, constants
// and scratch memory, within the memory there is. What was measured is asked for once.
func TestRehearsal(t *testing.T) {
	for _, captured := range []bool{true, false} {
		inner := cpu.Open(cpu.Options{Threads: 1})
		dev := &capturing{Device: inner}
		times := newCallTimes(dev, Options{})
		pass := block(t, captured)
		took, ok := times.Within(1 << 20).(machine.Rehearser).Rehearse(pass)
		if !ok || took <= 0 || took > time.Second {
			t.Fatalf("it takes %v, %v", took, ok)
		}
		own := map[int64]bool{}
		first := map[int]device.Buffer{}
		for l := range dev.queue.seen {
			if len(l.Buffers) != 3 {
				t.Fatalf("%d operands", len(l.Buffers))
			}
		}
		r := &rehearsal{bench: times.bench}
		for _, c := range pass.Calls {
			k, err := dev.Kernel(c.Call)
			if err != nil {
				t.Fatal(err)
			}
			r.kernels, pass.Scratch = append(r.kernels, k), max(pass.Scratch, pass.Work+k.Workspace())
		}
		if err := r.place(pass); err != nil {
			t.Fatal(err)
		}
		if len(r.rounds) != mostPasses {
			t.Errorf("%d passes with weights of their own, want %d", len(r.rounds), mostPasses)
		}
		for _, round := range r.rounds {
			for i, c := range pass.Calls {
				for k, place := range c.Places {
					b := round[i].Buffers[k]
					if b.Offset+b.Bytes > r.memory.Size() || b.Offset%inner.Info().Alignment != 0 {
						t.Errorf("operand %d of call %d is at %d", k, i, b.Offset)
					}
					if p := pass.Places[place]; !p.Scratch && !p.Shared {
						own[b.Offset] = true
					} else if was, known := first[place]; known && was != b {
						t.Errorf("place %d is shared, and at %d and %d", place, was.Offset, b.Offset)
					} else {
						first[place] = b
					}
				}
			}
		}
		if len(own) != 2*mostPasses {
			t.Errorf("weights in %d places", len(own))
		}
		for i, id := range first[0].Host()[:16] {
			if i%4 == 0 && id >= 10 {
				t.Errorf("id %d", id)
			}
		}
		for _, b := range first[5].Host() {
			if b != 0 {
				t.Fatal("a constant has other numbers")
			}
		}
		pass, launches := block(t, captured), dev.queue.launches
		if again, ok := times.Within(1 << 20).(machine.Rehearser).Rehearse(pass); !ok || again != took || dev.queue.launches != launches {
			t.Errorf("it takes %v, then %v", took, again)
		}
		pass.Scratch += 1
		if _, ok := times.Within(1 << 10).(machine.Rehearser).Rehearse(pass); ok {
			t.Error("it was run in a KiB")
		}
		few, ok := times.Within(1<<20).(machine.Rehearser).Replay(10, 0)
		if many, also := times.Within(1<<20).(machine.Rehearser).Replay(10000, 10); !ok || !also || few < 0 || many < few {
			t.Errorf("graphs take %v and %v to be launched", few, many)
		}
		if err := times.close(); err != nil {
			t.Error(err)
		}
		if err := inner.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A CPU, which captures nothing, runs short passes over as many weights as a run reads in turn. Long calls are known well enough each by
// itself, and a graph cannot be replayed.
func TestRehearsalOfCPU(t *testing.T) {
	dev := cpu.Open(cpu.Options{Threads: 1})
	defer dev.Close() // a device without memory
	times := newCallTimes(dev, Options{})
	pass := block(t, false)
	few := times.Among(1).(machine.Rehearser)
	took, ok := few.Rehearse(pass)
	if !ok || took <= 0 || took > time.Second {
		t.Fatalf("it takes %v, %v", took, ok)
	}
	if again, _ := few.Rehearse(pass); again != took {
		t.Errorf("it takes %v, then %v", took, again)
	}
	if n := len(times.known); n != len(pass.Calls)+1 {
		t.Errorf("%d times are known", n)
	}
	if _, ok := times.Among(2).(machine.Rehearser).Rehearse(pass); !ok || len(times.known) != len(pass.Calls)+2 {
		t.Error("a run that reads more takes the same")
	}
	x, w := of(dtype.F32, 4096, 4096), of(dtype.F32, 4096, 4096)
	long := machine.Pass{Calls: []machine.PassCall{{Call: callOf(t, op.MatMul, op.Attr{TransB: true}, x, w), Places: []int{0, 1, 2}}},
		Places: []machine.PassPlace{{Bytes: x.Bytes()}, {Bytes: w.Bytes()}, {Bytes: x.Bytes()}}}
	if took, ok := few.Rehearse(long); ok {
		t.Errorf("a pass of %v was run", took)
	}
	if took, ok := few.Replay(10, 0); ok {
		t.Errorf("a graph is replayed in %v", took)
	}
	if err := times.close(); err != nil {
		t.Error(err)
	}
}
