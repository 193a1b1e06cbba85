package executor_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"spillway/device"
	"spillway/device/cpu"
	"spillway/executor"
	"spillway/optim"
	"spillway/trace"
)

// tape is the CPU as a device that can capture graphs.
type tape struct {
	device.Device
	recorded  []func() error
	recording bool
	refuses   error
	captured  int
}

type tapeQueue struct {
	device.Queue
	t *tape
}

func (t *tape) Queue(name string) (device.Queue, error) {
	q, err := t.Device.Queue(name)
	return &tapeQueue{q, t}, err
}

// do records something, or does it.
func (q *tapeQueue) do(f func() error) error {
	if q.t.recording {
		q.t.recorded = append(q.t.recorded, f)
		return nil
	}
	return f()
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
	t.recording, t.recorded = true, nil
	err := issue()
	t.recording = false
	return played(t.recorded), errors.Join(err, t.refuses)
}

// played is what a tape has recorded.
type played []func() error

func (p played) Launch() error {
	for _, f := range p {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

func (p played) Close() error { return nil }

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

// A captured iteration is recorded once and replayed: the same numbers, read anew each
// time, give the same bits and counts. A device that cannot capture does the same work.
func TestCapturedIterations(t *testing.T) {
	p := streamed(t).Capture()
	const n = 6
	plain := prepared(t, p, cpu.Open(cpu.Options{Threads: 1}))
	want, counted, moved := runs(t, plain, n)
	dev := &tape{Device: cpu.Open(cpu.Options{Threads: 1})}
	e := prepared(t, p, dev)
	got, c, m := runs(t, e, n)
	if !e.ReplaysGraph() || plain.ReplaysGraph() || dev.captured != 1 {
		t.Fatalf("replays %v, the CPU %v, captured %d times", e.ReplaysGraph(), plain.ReplaysGraph(), dev.captured)
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

// What is traced is issued instruction by instruction.
func TestTracedIterationsAreNotReplayed(t *testing.T) {
	dev := &tape{Device: cpu.Open(cpu.Options{Threads: 1})}
	e := prepared(t, streamed(t).Capture(), dev)
	if err := e.Trace(trace.NewRing(1)); err != nil {
		t.Fatal(err)
	}
	if runs(t, e, 4); e.ReplaysGraph() {
		t.Error("replayed")
	}
}

// A plan that does not ask for it is not captured.
func TestOnlyThePlanDecidesToCapture(t *testing.T) {
	dev := &tape{Device: cpu.Open(cpu.Options{Threads: 1})}
	if runs(t, prepared(t, streamed(t), dev), 4); dev.captured != 0 {
		t.Errorf("captured %d times", dev.captured)
	}
}

// A device that cannot capture an iteration is asked once; another failure is an error.
func TestRefusedCapture(t *testing.T) {
	p := streamed(t).Capture()
	want, counted, _ := runs(t, prepared(t, p, cpu.Open(cpu.Options{Threads: 1})), 5)
	dev := &tape{Device: cpu.Open(cpu.Options{Threads: 1}), refuses: device.ErrNotCapturable}
	e := prepared(t, p, dev)
	if got, c, _ := runs(t, e, 5); !slices.Equal(got, want) || c != counted || dev.captured != 1 || e.ReplaysGraph() {
		t.Errorf("losses %v, counts %+v after %d captures; want %v, %+v", got, c, dev.captured, want, counted)
	}
	bad := &tape{Device: cpu.Open(cpu.Options{Threads: 1}), refuses: errors.New("made up")}
	e = prepared(t, p, bad)
	runs(t, e, 1)
	if err := e.Iterate(context.Background(), executor.IterationArgs{}); !errors.Is(err, bad.refuses) {
		t.Errorf("got %v", err)
	}
}
