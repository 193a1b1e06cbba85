package weights_test

import (
	"bytes"
	"os"
	"testing"

	"spillway/device"
	"spillway/device/cpu"
	"spillway/executor"
	"spillway/graph"
	"spillway/internal/offheap"
	"spillway/internal/tiny"
	"spillway/planner"
	"spillway/planner/strategy"
	"spillway/weights"
)

// started is an executor of a tiny model under a choice, without weights.
func started(t *testing.T, task graph.Task, goal planner.Goal, choose func(slabs, blocks int) strategy.Choice) *executor.Executor {
	t.Helper()
	dev := cpu.Open(cpu.Options{Threads: 1})
	site := tiny.Site(1 << 20)
	site.Kernels = dev
	p, err := planner.Build(tiny.Model(t, tiny.Llama, graph.Config{MicroBatchSize: 1, Seq: 16, Task: task}), goal, site, choose)
	if err != nil {
		t.Fatal(err)
	}
	e, err := executor.New(p, []device.Device{dev})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// fillAll writes bytes that differ from tensor to tensor to weights and state.
func fillAll(t *testing.T, e *executor.Executor) {
	t.Helper()
	for i, tensor := range append(e.Weights(), e.States()...) {
		if err := e.Write(tensor, func(offset int64, chunk []byte) error {
			for k := range chunk {
				chunk[k] = byte(37*i) + byte(offset) + byte(k)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}

func contents(t *testing.T, e *executor.Executor, tensors []executor.Tensor) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	for _, tensor := range tensors {
		name := tensor.Param.Name + " " + tensor.State
		if err := e.Read(tensor, func(_ int64, chunk []byte) error { all[name] = append(all[name], chunk...); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func same(t *testing.T, got, want map[string][]byte) {
	t.Helper()
	for name := range want {
		if !bytes.Equal(got[name], want[name]) {
			t.Errorf("%s is not as it was", name)
		}
	}
}

// What was parked under one plan comes back under another, bit for bit, and leaves
// neither memory nor files.
func TestParkedStateComesBack(t *testing.T) {
	folder := t.TempDir()
	for _, in := range []string{"", folder} {
		from := started(t, graph.Train, tiny.AdamW(1, true), strategy.Uniform(false, false, strategy.SaveAll, 1))
		fillAll(t, from)
		want := contents(t, from, append(from.Weights(), from.States()...))
		to := started(t, graph.Train, tiny.AdamW(1, true), strategy.Uniform(true, true, strategy.SaveNone, 2))
		infer := started(t, graph.Infer, planner.Goal{}, strategy.Uniform(true, false, strategy.SaveAll, 2))
		before := offheap.Mapped()
		p, err := weights.Park(from, in)
		if err != nil {
			t.Fatal(err)
		}
		if p.Bytes() != weights.ParkedBytes(from) || in != "" && offheap.Mapped() != before {
			t.Errorf("%d bytes parked in %q, %d mapped", p.Bytes(), in, offheap.Mapped()-before)
		}
		if err := p.Restore(to); err != nil {
			t.Fatal(err)
		}
		same(t, contents(t, to, append(to.Weights(), to.States()...)), want)
		if err := p.Weights(infer); err != nil {
			t.Fatal(err)
		}
		weightsAlone := contents(t, infer, infer.Weights())
		for name := range weightsAlone {
			same(t, weightsAlone, map[string][]byte{name: want[name]})
		}
		if p.Restore(infer) == nil {
			t.Error("a plan without optimizer state took state that has some")
		}
		if err := p.Close(); err != nil || offheap.Mapped() != before {
			t.Errorf("%d bytes left, %v", offheap.Mapped()-before, err)
		}
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
		t.Errorf("%v left, %v", left, err)
	}
	if _, err := weights.Park(started(t, graph.Infer, planner.Goal{}, strategy.Uniform(false, false, strategy.SaveAll, 1)), "no/such/folder"); err == nil {
		t.Error("parked in a folder that does not exist")
	}
}
