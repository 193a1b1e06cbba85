package executor_test

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"testing"

	"spillway/device"
	"spillway/device/cpu"
	"spillway/executor"
	"spillway/internal/tiny"
	"spillway/optim"
	"spillway/plan"
	"spillway/planner/strategy"
	"spillway/trace"
)

// prefetching is a plan in which the next batch comes during an iteration, or does not.
func prefetching(t testing.TB, micros int, streams, next bool) *plan.Plan {
	t.Helper()
	p := builtOnCPU(t, tiny.AdamW(micros, true), func(slabs, blocks int) strategy.Choice {
		c := strategy.Uniform(streams, streams, strategy.SaveNone, 2)(slabs, blocks)
		c.NextBatch = next
		return c
	})
	if p.PrefetchesBatch() != next {
		t.Fatalf("it prefetches: %v", p.PrefetchesBatch())
	}
	return p
}

// fillBatch puts the batch of an iteration in place, of which no two are alike.
func fillBatch(e *executor.Executor, iteration int) error {
	for j := range e.Plan().MicroBatches {
		for _, part := range e.Plan().Batch {
			raw, err := e.BatchTensor(j, part.Name)
			if err != nil {
				return err
			}
			for i := range len(raw) / 4 {
				bits := math.Float32bits(0.01)
				switch part.Name {
				case "tokens", "targets":
					bits = uint32((i*i + 7*iteration + 3*j) % 50)
				case "positions":
					bits = uint32(i % 16)
				case "segments":
					bits = 0
				}
				binary.LittleEndian.PutUint32(raw[4*i:], bits)
			}
		}
	}
	return nil
}

func clippedArgs(i int) executor.IterationArgs {
	step := optim.AdamStep{Rate: 1e-2, Beta1: 0.9, Beta2: 0.99, Eps: 1e-8, Bias1: 0.1, Bias2: 0.1}.Scalars()
	return executor.IterationArgs{Seed: 7, Iteration: uint64(i), Optimizer: step, NoDecay: step, MaxNorm: 1}
}

// trainAhead trains some iterations. ahead says whether the batch behind one is put in place while it runs.
func trainAhead(t *testing.T, e *executor.Executor, n int, ahead func(i int) bool) (losses []float64) {
	t.Helper()
	there := -1
	for i := range n {
		if there != i {
			if err := fillBatch(e, i); err != nil {
				t.Fatal(err)
			}
		}
		args, late := clippedArgs(i), error(nil)
		if ahead(i) {
			args.Meanwhile = func() {
				late = errors.Join(fillBatch(e, i+1), e.Upload())
				there = i + 1
			}
		}
		if err := errors.Join(e.Iterate(context.Background(), args), late); err != nil {
			t.Fatal(err)
		}
		losses = append(losses, e.Loss())
	}
	return losses
}

// A batch that comes during the iteration before is the batch: the losses are the same bits whether it does always,
// never or now and then, and whether iterations are captured or not. One graph is captured.
func TestNextBatchIsTheBatch(t *testing.T) {
	const n = 7
	never := func(int) bool { return false }
	for _, micros := range []int{1, 3} {
		for _, streams := range []bool{false, true} {
			want := trainAhead(t, prepared(t, prefetching(t, micros, streams, false), cpu.Open(cpu.Options{Threads: 1})), n, never)
			host := prepared(t, prefetching(t, micros, streams, false), cpu.Open(cpu.Options{Threads: 1}))
			before := host.BatchWrites()
			if got := trainAhead(t, host, n, func(int) bool { return true }); !slices.Equal(got, want) || !host.PreparesBatch() || host.BatchWrites() <= before {
				t.Errorf("%d micro-batches, streamed %v, put in place on the host (%v): losses %v, want %v", micros, streams, host.PreparesBatch(), got, want)
			}
			p := prefetching(t, micros, streams, true)
			for name, ahead := range map[string]func(int) bool{"never": never, "always": func(int) bool { return true }, "sometimes": func(i int) bool { return i%3 != 1 }} {
				if got := trainAhead(t, prepared(t, p, cpu.Open(cpu.Options{Threads: 1})), n, ahead); !slices.Equal(got, want) {
					t.Errorf("%d micro-batches, streamed %v, %s: losses %v, want %v", micros, streams, name, got, want)
				}
				if p.CanCapture() != (micros == 1) {
					t.Fatalf("with %d micro-batches it can be captured: %v", micros, p.CanCapture())
				}
				if micros > 1 {
					continue
				}
				captured := p.Capture()
				if err := plan.Verify(captured); err != nil {
					t.Fatal(err)
				}
				dev := &tape{Device: cpu.Open(cpu.Options{Threads: 1})}
				e := prepared(t, captured, dev)
				if got := trainAhead(t, e, n, ahead); !slices.Equal(got, want) || !e.ReplaysGraph() || dev.captured != 1 {
					t.Errorf("captured %d times, streamed %v, %s: losses %v, want %v", dev.captured, streams, name, got, want)
				}
			}
		}
	}
}

// A batch that was sent is used, whatever is put in place behind it, unless it is dropped.
func TestUploadedBatchesStay(t *testing.T) {
	e := prepared(t, prefetching(t, 1, false, true), cpu.Open(cpu.Options{Threads: 1}))
	loss := func(upload, drop bool) float64 {
		if upload {
			if err := errors.Join(fillBatch(e, 1), e.Upload(), e.Upload()); err != nil {
				t.Fatal(err)
			}
		}
		if err := fillBatch(e, 2); err != nil {
			t.Fatal(err)
		}
		if drop {
			e.DropUpload()
		}
		args := clippedArgs(0)
		args.Optimizer, args.NoDecay = optim.AdamStep{Beta1: 0.9, Beta2: 0.99, Eps: 1e-8, Bias1: 1, Bias2: 1}.Scalars(), optim.AdamStep{Beta1: 0.9, Beta2: 0.99, Eps: 1e-8, Bias1: 1, Bias2: 1}.Scalars()
		if err := e.Iterate(context.Background(), args); err != nil { // at a rate of 0 nothing changes
			t.Fatal(err)
		}
		return e.Loss()
	}
	second, first := loss(false, false), loss(true, false)
	if again := loss(true, true); again != second || first == second {
		t.Errorf("losses %v of a batch that was sent, %v of the one put in place, %v of that with the other dropped", first, second, again)
	}
}

// failing is the CPU with a queue in that fails when it is told to.
type failing struct {
	device.Device
	now bool
}

type failingQueue struct {
	device.Queue
	f    *failing
	name string
}

func (f *failing) Queue(name string) (device.Queue, error) {
	q, err := f.Device.Queue(name)
	return &failingQueue{q, f, name}, err
}

// SyncTo fails as a queue does in which a copy has failed.
func (q *failingQueue) SyncTo(e device.Event) error {
	err := q.Queue.SyncTo(e)
	if q.f.now && q.name == string(plan.In) {
		q.f.now = false
		err = errors.Join(err, errors.New("made up"))
	}
	return err
}

// A copy of the next batch that fails is an error of the iteration that would have had it, or of who puts another in place.
func TestFailedUploads(t *testing.T) {
	for _, fills := range []bool{false, true} {
		dev := &failing{Device: cpu.Open(cpu.Options{Threads: 1})}
		e := prepared(t, prefetching(t, 1, false, true), dev)
		if err := errors.Join(fillBatch(e, 0), e.Iterate(context.Background(), clippedArgs(0)), fillBatch(e, 1), e.Upload()); err != nil {
			t.Fatal(err)
		}
		dev.now = true
		var err error
		if fills {
			err = fillBatch(e, 2)
		} else {
			err = e.Iterate(context.Background(), clippedArgs(1))
		}
		if err == nil {
			t.Errorf("no error; the next batch is put in place: %v", fills)
		}
	}
}

// A trace has the copy of the next batch where one came, and ends for it where none did.
func TestTracesOfNextBatches(t *testing.T) {
	e := prepared(t, prefetching(t, 1, false, true), cpu.Open(cpu.Options{Threads: 1}))
	p := e.Plan()
	brings := slices.IndexFunc(p.Instructions, func(s plan.Instruction) bool { return p.BringsNextBatch(&s) })
	for _, comes := range []bool{true, false, true} {
		ring := trace.NewRing(len(p.Instructions))
		if err := errors.Join(fillBatch(e, 0), e.Trace(ring)); err != nil {
			t.Fatal(err)
		}
		args, late := clippedArgs(0), error(nil)
		if comes {
			args.Meanwhile = func() { late = errors.Join(fillBatch(e, 1), e.Upload()) }
		}
		if err := errors.Join(e.Iterate(context.Background(), args), late, e.Trace(nil)); err != nil {
			t.Fatal(err)
		}
		e.DropUpload()
		events := ring.Events()
		if ev := events[brings]; len(events) != len(p.Instructions) || ev.Start < 0 || ev.End < ev.Start || (ev.End > ev.Start) != comes {
			t.Errorf("the next batch comes: %v; its event is %+v of %d", comes, ev, len(events))
		}
	}
}
