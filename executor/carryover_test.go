package executor_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"spillway/device"
	"spillway/device/cpu"
	"spillway/device/sim"
	"spillway/executor"
	"spillway/internal/tiny"
	"spillway/plan"
	"spillway/planner/strategy"
)

// changed is the plan with other instructions.
func changed(p *plan.Plan, change func(*plan.Instruction)) *plan.Plan {
	q := *p
	q.Instructions = slices.Clone(p.Instructions)
	for i := range q.Instructions {
		change(&q.Instructions[i])
	}
	return &q
}

// whole is the plan in which nothing carries over.
func whole(p *plan.Plan) *plan.Plan {
	return changed(p, func(s *plan.Instruction) { s.CarriesOver, s.AfterPrevious = false, nil })
}

// shared is a plan in which everything streams, for some devices, of which the host may
// update every other slab, clipped ones in the next iteration.
func shared(t testing.TB, devices int, updatedByCPU, clipped bool) *plan.Plan {
	t.Helper()
	p := builtOnCPU(t, tiny.AdamW(2, clipped), func(slabs, blocks int) strategy.Choice {
		c := strategy.Uniform(true, true, strategy.SaveNone, 2)(slabs, blocks)
		c.Devices, c.DelayedUpdates, c.UpdatedByCPU = devices, clipped, make([]bool, slabs)
		for k := range c.UpdatedByCPU {
			c.UpdatedByCPU[k] = updatedByCPU && k%2 == 1
		}
		return c
	})
	return p
}

// on starts a plan with random initial weights, each device made anew.
func on(t testing.TB, p *plan.Plan, open func() device.Device) *executor.Executor {
	t.Helper()
	if len(p.Devices) == 1 {
		return prepared(t, p, open())
	}
	devices := make([]device.Device, len(p.Devices))
	for d := range devices {
		devices[d] = open()
	}
	e, err := executor.New(p, devices)
	if err != nil {
		t.Fatal(err)
	}
	return filled(t, e)
}

func carriesOver(p *plan.Plan) bool {
	return slices.ContainsFunc(p.Instructions, func(s plan.Instruction) bool { return s.CarriesOver })
}

// trained is everything after some iterations, with the losses on the way and the norms;
// now and then somebody looks.
func trained(t testing.TB, e *executor.Executor, n int) map[string][]byte {
	t.Helper()
	var reported []byte
	for i := range n {
		iterate(t, e, i)
		norm, err := e.Norm()
		if err != nil {
			t.Fatal(err)
		}
		reported = fmt.Appendf(reported, "%x %x\n", e.Loss(), norm)
		if i%5 == 3 {
			reported = append(reported, read(t, e, e.Weights()[i%len(e.Weights())])...)
		}
	}
	list := all(t, e)
	list["reported"] = reported
	return list
}

// Iterations that overlap give the same bits as those that do not, however slow the copies
// that carry over are: with one device and several, with updates on the CPU, with
// deferred ones.
func TestOverlapChangesNothing(t *testing.T) {
	const n = 12
	for name, p := range map[string]*plan.Plan{
		"streamed": streamed(t), "clipped": clipped(t, false), "deferred": clipped(t, true),
		"updated by the host too": shared(t, 1, true, false), "two devices": shared(t, 2, false, false), "two devices and the host": shared(t, 2, true, false),
	} {
		if !carriesOver(p) {
			t.Errorf("%s: nothing carries over", name)
		}
		want := trained(t, on(t, whole(p), func() device.Device { return cpu.Open(cpu.Options{Threads: 1}) }), n)
		got := trained(t, on(t, p, func() device.Device { return newOutward(slowly) }), n)
		if !maps.EqualFunc(want, got, bytes.Equal) {
			t.Errorf("%s: iterations that overlap give other bits", name)
		}
	}
}

// What the CPU waits for of the iteration before is what that one has
// recorded, although the next has been given to the GPU meanwhile.
func TestTheHostWaitsForPreviousCopiesOfGPUs(t *testing.T) {
	p := shared(t, 1, true, true)
	waits := 0
	for _, s := range p.Instructions {
		if p.Devices[s.Device].Name == plan.HostName {
			waits += len(s.AfterPrevious)
		}
	}
	if waits == 0 {
		t.Fatal("the host waits for nothing of the iteration before")
	}
	start := func(p *plan.Plan, before func() error) *executor.Executor {
		e, err := executor.New(p, []device.Device{gpu{newOutward(before)}, cpu.Open(cpu.Options{Threads: 1})})
		if err != nil {
			t.Fatal(err)
		}
		return filled(t, e)
	}
	want := trained(t, start(whole(p), func() error { return nil }), 8)
	if got := trained(t, start(p, slowly), 8); !maps.EqualFunc(want, got, bytes.Equal) {
		t.Error("iterations that overlap give other bits")
	}
}

// A plan that lacks the waits for the iteration before is refused. It is for a reason:
// carried out, it gives other numbers.
func TestWaitsForThePreviousIterationMatter(t *testing.T) {
	p := streamed(t)
	bad := changed(p, func(s *plan.Instruction) { s.AfterPrevious = nil })
	if err := plan.Verify(bad); err == nil || !strings.Contains(err.Error(), "(P9)") {
		t.Errorf("a plan without its waits: %v", err)
	}
	slow := func() device.Device { return newOutward(slowly) }
	if maps.EqualFunc(trained(t, on(t, p, slow), 6), trained(t, on(t, bad, slow), 6), bytes.Equal) {
		t.Error("the waits make no difference")
	}
}

// held lets copies pass up to a number, and the rest when it is released.
type held struct {
	left atomic.Int64
	open chan struct{}
}

func (h *held) before() error {
	if h.left.Add(-1) < 0 {
		<-h.open
	}
	return nil
}

// outCopies counts the copies to the host of an iteration, and those that carry over.
func outCopies(p *plan.Plan) (all, carried int64) {
	for _, s := range p.Instructions {
		if s.Verb == plan.Move && s.Lane == plan.Out {
			all++
		}
		if s.CarriesOver {
			carried++
		}
	}
	return all, carried
}

// An iteration ends while its copies are held, with its results and norm there. Whoever
// looks at weights waits for them.
func TestIterationsEndBeforeTheirCopies(t *testing.T) {
	p := clipped(t, false)
	count, carried := outCopies(p)
	if carried == 0 {
		t.Fatal("nothing carries over")
	}
	h := &held{open: make(chan struct{})}
	h.left.Store(count - carried)
	e := prepared(t, p, newOutward(h.before))
	plain := prepared(t, whole(p), cpu.Open(cpu.Options{Threads: 1}))
	iterate(t, e, 0)
	iterate(t, plain, 0)
	norm, err := e.Norm()
	want, _ := plain.Norm()
	if err != nil || norm != want || e.Loss() != plain.Loss() {
		t.Errorf("norm %v and loss %v, %v; want %v and %v", norm, e.Loss(), err, want, plain.Loss())
	}
	looked := make(chan map[string][]byte)
	go func() { looked <- all(t, e) }()
	select {
	case <-looked:
		t.Error("somebody has read weights that are on their way")
	case <-time.After(20 * time.Millisecond):
	}
	close(h.open)
	if got := <-looked; !maps.EqualFunc(got, all(t, plain), bytes.Equal) {
		t.Error("weights or states differ")
	}
}

// Each of these waits for what carries over, so an error there comes out, once, and says which
// iteration it is of; whoever is next has none.
func TestErrorsOfWhatCarriesOver(t *testing.T) {
	p := streamed(t)
	fault := errors.New("injected")
	iterates := func(e *executor.Executor) error {
		return e.Iterate(context.Background(), executor.IterationArgs{Iteration: 8})
	}
	for name, wait := range map[string]func(e *executor.Executor) error{
		"the next iteration": iterates,
		"flushing":           (*executor.Executor).Flush,
		"preparing":          (*executor.Executor).WriteConstants,
		"tracing":            func(e *executor.Executor) error { return e.Trace(nil) },
		"reading": func(e *executor.Executor) error {
			return e.Read(e.Weights()[0], func(int64, []byte) error { return nil })
		},
		"writing": func(e *executor.Executor) error {
			return e.Write(e.States()[0], func(int64, []byte) error { return nil })
		},
	} {
		count, _ := outCopies(p)
		var copies atomic.Int64
		ended := make(chan struct{}) // the iteration, which does not wait for its last copy
		e := prepared(t, p, newOutward(func() error {
			if copies.Add(1) == count { // the last of the first iteration
				<-ended
				return fault
			}
			return nil
		}))
		if err := e.Iterate(context.Background(), executor.IterationArgs{Iteration: 7}); err != nil {
			t.Fatal(err)
		}
		close(ended)
		if err := wait(e); !errors.Is(err, fault) || !strings.Contains(err.Error(), "carried over from iteration 7") {
			t.Errorf("%s: %v, want the injected fault of what iteration 7 carries over", name, err)
		}
		if err := errors.Join(e.Flush(), iterates(e), e.Close()); err != nil {
			t.Errorf("%s: reported again: %v", name, err)
		}
	}
}

// A copy that carries over and is refused when it is given is an error with its number, and leaks
// nothing.
func TestRefusedCopiesThatCarryOver(t *testing.T) {
	p := streamed(t)
	fault, moves := errors.New("injected"), 0
	for i, s := range p.Instructions {
		if s.Verb != plan.Move {
			continue
		}
		if moves++; !s.CarriesOver {
			continue
		}
		dev := sim.NewCapped(cpu.Open(cpu.Options{Threads: 1}), p.Devices[0].Budget, sim.Faults{Copy: moves, Err: fault})
		e, err := executor.New(p, []device.Device{dev})
		if err != nil {
			t.Fatal(err)
		}
		err = e.Iterate(context.Background(), executor.IterationArgs{})
		if !errors.Is(err, fault) || !strings.Contains(err.Error(), fmt.Sprintf("instruction %d ", i)) {
			t.Errorf("%v, want the injected fault of instruction %d", err, i)
		}
		if err := errors.Join(e.Iterate(context.Background(), executor.IterationArgs{}), e.Close(), dev.Close()); err != nil {
			t.Error(err)
		}
	}
}
