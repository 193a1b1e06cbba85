package executor_test

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"strings"
	"sync/atomic"
	"testing"

	"spillway/device"
	"spillway/device/cpu"
	"spillway/executor"
	"spillway/internal/tiny"
	"spillway/plan"
	"spillway/planner"
)

// An evaluation is a phase that shares the arenas of the training run: it computes the loss
// that the next iteration begins with, and changes nothing.
func TestEvaluationIsAPhase(t *testing.T) {
	for name, p := range map[string]*plan.Plan{"streamed": streamed(t), "captured": streamed(t).Capture()} {
		t.Run(name, func(t *testing.T) {
			p, err := planner.WithEvaluation(p, tiny.Site(1<<30))
			if err != nil {
				t.Fatal(err)
			}
			dev := &tape{Device: cpu.Open(cpu.Options{Threads: 1})}
			e := prepared(t, p, dev)
			iterate(t, e, 0)
			for i := 1; i < 5; i++ {
				before, moved := all(t, e), e.Counters().Moves
				if err := e.RunPhase(context.Background(), plan.Evaluate, argsOf(i)); err != nil {
					t.Fatal(err)
				}
				loss := e.Loss()
				if moved = e.Counters().Moves - moved; moved == 0 {
					t.Error("the evaluation streams nothing")
				}
				if !maps.EqualFunc(before, all(t, e), bytes.Equal) {
					t.Fatalf("the evaluation before iteration %d changed weights or states", i)
				}
				if iterate(t, e, i); e.Loss() != loss || loss == 0 {
					t.Errorf("iteration %d: evaluated %v, trained with %v", i, loss, e.Loss())
				}
				if maps.EqualFunc(before, all(t, e), bytes.Equal) {
					t.Fatalf("iteration %d changed nothing", i)
				}
			}
			if want := map[bool]int{true: 2}[p.Captured]; dev.captured != want {
				t.Errorf("captured %d times, want %d", dev.captured, want)
			}
		})
	}
}

func TestUnknownPhase(t *testing.T) {
	e := prepared(t, streamed(t), cpu.Open(cpu.Options{Threads: 1}))
	if err := e.RunPhase(context.Background(), "decode", executor.IterationArgs{}); err == nil {
		t.Error("a phase that is not there ran")
	}
}

// Plans that this executor cannot carry out are refused before anything is allocated.
func TestRefusedPlans(t *testing.T) {
	for name, change := range map[string]func(*plan.Plan){
		"another rank": func(p *plan.Plan) { p.Devices[0].Rank = 1 },
		"a page table": func(p *plan.Plan) { p.Buffers[0].Pages = &plan.Pages{Bytes: 1} },
		"more devices": func(p *plan.Plan) { p.Devices = append(p.Devices, p.Devices[0]) },
	} {
		p, dev := streamed(t), cpu.Open(cpu.Options{Threads: 1})
		change(p)
		if _, err := executor.New(p, []device.Device{dev}); err == nil {
			t.Errorf("%s: started", name)
		}
		if err := dev.Close(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// endsAfter is a context that ends when it was asked so often.
type endsAfter struct {
	context.Context
	left atomic.Int64
}

func (c *endsAfter) Err() error {
	if c.left.Add(-1) < 0 {
		return context.Canceled
	}
	return nil
}

// A phase whose context ends does not compute what its queues have: of a large model that takes many seconds.
func TestPhasesEndWithTheirContext(t *testing.T) {
	p, err := planner.WithEvaluation(streamed(t), tiny.Site(1<<30))
	if err != nil {
		t.Fatal(err)
	}
	e := prepared(t, p, cpu.Open(cpu.Options{Threads: 1}))
	cancelled, cancel := context.WithCancel(context.Background())
	defer cancel()
	late := &endsAfter{Context: cancelled}
	late.left.Store(int64(len(p.Instructions) / 16)) // after all was given to the queues
	iterate(t, e, 0)
	if err := e.RunPhase(late, plan.Evaluate, argsOf(1)); !errors.Is(err, context.Canceled) || strings.Count(err.Error(), "canceled") != 1 {
		t.Errorf("error %v", err)
	}
	if err := e.RunPhase(cancelled, plan.Evaluate, argsOf(1)); err != nil || e.Loss() == 0 {
		t.Errorf("another after it: loss %v, %v", e.Loss(), err)
	}
}
