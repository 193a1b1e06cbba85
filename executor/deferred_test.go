package executor_test

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"testing"

	"spillway/autograd"
	"spillway/device/cpu"
	"spillway/executor"
	"spillway/internal/tiny"
	"spillway/optim"
	"spillway/plan"
	"spillway/planner/strategy"
)

// clipped is a plan that updates after the backward, or in the next iteration.
func clipped(t testing.TB, delayed bool) *plan.Plan {
	t.Helper()
	p := builtOnCPU(t, tiny.AdamW(2, true), func(slabs, blocks int) strategy.Choice {
		c := strategy.Uniform(true, true, strategy.SaveNone, 2)(slabs, blocks)
		c.DelayedUpdates = delayed
		return c
	})
	if deferred := slices.ContainsFunc(p.Instructions, func(s plan.Instruction) bool { return s.Deferred }); deferred != delayed {
		t.Fatalf("deferred instructions: %t, want %t", deferred, delayed)
	}
	return p
}

// argsOf iteration i: each has rates of its own, and its own limit of the norm.
func argsOf(i int) executor.IterationArgs {
	n := executor.IterationArgs{Iteration: uint64(i), MaxNorm: 0.01 * float32(i+1)}
	n.Optimizer = optim.AdamStep{Rate: 0.01 / float32(i+1), Decay: 0.1, Beta1: 0.9, Beta2: 0.99, Eps: 1e-8, Bias1: 0.1 * float32(i+1), Bias2: 0.2}.Scalars()
	n.NoDecay = n.Optimizer
	return n
}

func iterate(t testing.TB, e *executor.Executor, i int) {
	t.Helper()
	for micro := range e.Plan().MicroBatches {
		for _, name := range []string{"scale", autograd.LossScale} {
			raw, err := e.BatchTensor(micro, name)
			if err != nil {
				t.Fatal(err)
			}
			copy(raw, []byte{0, 0, 0x80, 0x3f}) // 1
		}
	}
	if err := e.Iterate(context.Background(), argsOf(i)); err != nil {
		t.Fatal(err)
	}
}

// all is everything trained, by name.
func all(t testing.TB, e *executor.Executor) map[string][]byte {
	t.Helper()
	list := map[string][]byte{}
	for _, x := range append(e.Weights(), e.States()...) {
		list[x.Param.Name+" "+x.State] = read(t, e, x)
	}
	return list
}

func read(t testing.TB, e *executor.Executor, x executor.Tensor) (raw []byte) {
	t.Helper()
	if err := e.Read(x, func(_ int64, chunk []byte) error { raw = append(raw, chunk...); return nil }); err != nil {
		t.Fatal(err)
	}
	return raw
}

// Whoever reads after an iteration sees all its updates, whether they were made in it or
// are pending, whenever somebody looked before; the norm stays that of the iteration.
func TestPendingUpdatesAreFlushed(t *testing.T) {
	walk, deferred := prepared(t, clipped(t, false), cpu.Open(cpu.Options{Threads: 1})), prepared(t, clipped(t, true), cpu.Open(cpu.Options{Threads: 1}))
	before := all(t, walk)
	for i, looks := range []bool{true, false, false, true, true, false, true} {
		iterate(t, walk, i)
		iterate(t, deferred, i)
		if !looks {
			continue
		}
		want, got := all(t, walk), all(t, deferred)
		if !maps.EqualFunc(want, got, bytes.Equal) {
			t.Fatalf("iteration %d: weights or states differ", i)
		}
		if maps.EqualFunc(want, before, bytes.Equal) {
			t.Fatalf("iteration %d changed nothing", i)
		}
		before = want
		a, err := walk.Norm()
		b, bad := deferred.Norm()
		if err != nil || bad != nil || a != b || a == 0 {
			t.Errorf("iteration %d: norms %v and %v; %v, %v", i, a, b, err, bad)
		}
	}
}

// Gradients are shown in the iteration that made them.
func TestGradientsOfDeferredUpdates(t *testing.T) {
	shown := func(delayed bool) (list []map[string][]byte) {
		e := prepared(t, clipped(t, delayed), cpu.Open(cpu.Options{Threads: 1}))
		iterate(t, e, 0)
		for i := 1; i < 3; i++ {
			now := map[string][]byte{}
			e.OnGradient(func(g executor.Tensor) error { now[g.Param.Name] = read(t, e, g); return nil })
			iterate(t, e, i)
			list = append(list, now)
		}
		return list
	}
	want, got := shown(false), shown(true)
	for i := range want {
		if len(want[i]) == 0 || !maps.EqualFunc(want[i], got[i], bytes.Equal) {
			t.Errorf("iteration %d: %d gradients, %d where updates are deferred, or others", i+1, len(want[i]), len(got[i]))
		}
	}
}
