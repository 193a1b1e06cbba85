package executor_test

import (
	"context"
	"testing"

	"spillway/device/cpu"
	"spillway/executor"
	"spillway/internal/tiny"
	"spillway/plan"
	"spillway/planner"
	"spillway/trace"
)

// The ops of an iteration and of a phase are timed within their instructions, one after the
// other and each once; a captured program is not replayed meanwhile, and is again after.
func TestOpsAreTimed(t *testing.T) {
	p, err := planner.WithEvaluation(streamed(t).Capture(), tiny.Site(1<<30))
	if err != nil {
		t.Fatal(err)
	}
	dev := &tape{Device: cpu.Open(cpu.Options{Threads: 1})}
	e := prepared(t, p, dev)
	for i := range 3 {
		iterate(t, e, i)
	}
	for _, phase := range []string{"", plan.Evaluate} {
		of := p
		if phase != "" {
			if of, err = p.Phase(phase); err != nil {
				t.Fatal(err)
			}
		}
		var ops []executor.OpTime
		ring := trace.NewRing(len(of.Instructions))
		if err := e.TracePhase(phase, ring, func(o executor.OpTime) { ops = append(ops, o) }); err != nil {
			t.Fatal(err)
		}
		before, captured := e.Counters().Launches, dev.captured
		if phase == "" {
			iterate(t, e, 3)
		} else if err := e.RunPhase(context.Background(), phase, argsOf(4)); err != nil {
			t.Fatal(err)
		}
		if launches := e.Counters().Launches - before; launches != int64(len(ops)) || dev.captured != captured {
			t.Errorf("phase %q: %d ops of %d launches are timed, captured %d times", phase, len(ops), launches, dev.captured-captured)
		}
		events := ring.Events()
		if len(events) != len(of.Instructions) {
			t.Fatalf("phase %q: %d events of %d instructions", phase, len(events), len(of.Instructions))
		}
		next := map[int]int{}
		for _, o := range ops {
			at := events[o.Instruction]
			if s := of.Instructions[o.Instruction]; s.Verb == plan.Run && o.Op >= len(p.Programs[s.Program].Graph.Nodes) || o.Op != next[o.Instruction] {
				t.Errorf("phase %q: op %d of instruction %d comes where %d was expected", phase, o.Op, o.Instruction, next[o.Instruction])
			}
			next[o.Instruction]++
			if o.Start < at.Start || o.End > at.End || o.End < o.Start {
				t.Errorf("phase %q: op %d of instruction %d ran from %d to %d, the instruction from %d to %d", phase, o.Op, o.Instruction, o.Start, o.End, at.Start, at.End)
			}
		}
	}
	if err := e.Trace(nil); err != nil {
		t.Fatal(err)
	}
	iterate(t, e, 5)
	if err := e.TracePhase("none", trace.NewRing(1), nil); err == nil {
		t.Error("a phase that is not there is traced")
	}
}
