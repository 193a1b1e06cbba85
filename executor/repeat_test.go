package executor_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"spillway/device"
	"spillway/device/cpu"
	"spillway/executor"
	"spillway/optim"
	"spillway/trace"
)

// tape is the processor as a device that can repeat, and that is slow to be given
// things: every one of them is waited for, and some time longer.
type tape struct {
	device.Device
	notes    []func() error
	noting   bool
	refuses  error
	captured int
}

type tapeQueue struct {
	device.Queue
	t *tape
}

func (t *tape) Queue(name string) (device.Queue, error) {
	q, err := t.Device.Queue(name)
	return &tapeQueue{q, t}, err
}

// do notes something, or does it and waits.
func (q *tapeQueue) do(f func() error) error {
	if q.t.noting {
		q.t.notes = append(q.t.notes, f)
		return nil
	}
	err := errors.Join(f(), q.Queue.Sync())
	for start := time.Now(); time.Since(start) < 50*time.Microsecond; {
		runtime.Gosched()
	}
	return err
}

func (q *tapeQueue) Copy(dst, src device.Buffer) error {
	return q.do(func() error { return q.Queue.Copy(dst, src) })
}
func (q *tapeQueue) Launch(k device.Kernel, l *device.Launch) error {
	return q.do(func() error { return q.Queue.Launch(k, l) })
}
func (q *tapeQueue) Record(e device.Event) error {
	return q.do(func() error { return q.Queue.Record(e) })
}
func (q *tapeQueue) Wait(e device.Event) error {
	return q.do(func() error { return q.Queue.Wait(e) })
}

func (t *tape) Capture(_ []device.Queue, issue func() error) (device.Graph, error) {
	t.captured++
	t.noting, t.notes = true, nil
	err := issue()
	t.noting = false
	return played{t}, errors.Join(err, t.refuses)
}

// played is what a tape has noted.
type played struct{ t *tape }

func (p played) Launch() error {
	for _, f := range p.t.notes {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

func (p played) Close() error {
	p.t.notes = nil
	return nil
}

// runs iterates and gives the losses and what was counted.
func runs(t *testing.T, e *executor.Executor, n int) (losses []float64, c executor.Counters, routes string) {
	t.Helper()
	for i := range n {
		step := optim.AdamStep{Rate: 1e-2 / float32(i+1), Beta1: 0.9, Beta2: 0.99, Eps: 1e-8, Bias1: 0.1, Bias2: 0.1}.Scalars()
		if err := e.Iterate(context.Background(), executor.IterationArgs{Seed: 7, Iteration: uint64(i), Optimizer: step, NoDecay: step}); err != nil {
			t.Fatal(err)
		}
		losses = append(losses, e.Loss())
	}
	return losses, e.Counters(), fmt.Sprint(e.Transfers())
}

// An iteration that takes longer to hand over than to do is noted once and repeated: the
// same numbers, read anew each time, give the same bits and counts.
func TestRepeatedIterations(t *testing.T) {
	p := streamed(t)
	const n = 6
	plain := prepared(t, p, cpu.Open(cpu.Options{Threads: 1}))
	want, counted, moved := runs(t, plain, n)
	dev := &tape{Device: cpu.Open(cpu.Options{Threads: 1})}
	e := prepared(t, p, dev)
	got, c, m := runs(t, e, n)
	if !e.ReplaysGraph() || plain.ReplaysGraph() || dev.captured != 1 {
		t.Fatalf("repeats %v, the processor %v, captured %d times", e.ReplaysGraph(), plain.ReplaysGraph(), dev.captured)
	}
	if !slices.Equal(got, want) || c != counted || m != moved {
		t.Errorf("losses %v, counts %+v, %v; want %v, %+v, %v", got, c, m, want, counted, moved)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := e.Iterate(ctx, executor.IterationArgs{}); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled iteration gives %v", err)
	}
}

// What is traced is issued step by step.
func TestTracedIterationsAreNotRepeated(t *testing.T) {
	dev := &tape{Device: cpu.Open(cpu.Options{Threads: 1})}
	e := prepared(t, streamed(t), dev)
	if err := e.Trace(trace.NewRing(1)); err != nil {
		t.Fatal(err)
	}
	if runs(t, e, 4); e.ReplaysGraph() {
		t.Error("repeated")
	}
}

// A device that cannot note an iteration is asked once; another failure is an error.
func TestRefusedRepeat(t *testing.T) {
	p := streamed(t)
	want, counted, _ := runs(t, prepared(t, p, cpu.Open(cpu.Options{Threads: 1})), 5)
	dev := &tape{Device: cpu.Open(cpu.Options{Threads: 1}), refuses: device.ErrNotCapturable}
	e := prepared(t, p, dev)
	if got, c, _ := runs(t, e, 5); !slices.Equal(got, want) || c != counted || dev.captured != 1 || e.ReplaysGraph() {
		t.Errorf("losses %v, counts %+v after %d captures; want %v, %+v", got, c, dev.captured, want, counted)
	}
	bad := &tape{Device: cpu.Open(cpu.Options{Threads: 1}), refuses: errors.New("made up")}
	e = prepared(t, p, bad)
	runs(t, e, 2)
	if err := e.Iterate(context.Background(), executor.IterationArgs{}); !errors.Is(err, bad.refuses) {
		t.Errorf("got %v", err)
	}
}
