package bench

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"spillway/device/cpu"
	"spillway/dtype"
	"spillway/machine"
	"spillway/op"
	"spillway/shape"
)

func TestCallsAreTimed(t *testing.T) {
	dev := cpu.Open(cpu.Options{})
	defer dev.Close()
	timed := func(n int64) time.Duration {
		square := op.Type{DType: dtype.F32, Shape: shape.Shape{n, n}}
		took, err := bestTime(dev, []op.Call{{Kind: op.MatMul, In: []op.Type{square, square}, Out: []op.Type{square}}})
		if err != nil {
			t.Fatal(err)
		}
		return took
	}
	if small, large := timed(32), timed(512); !(small > 0 && large > small) {
		t.Errorf("a matmul of 32³ takes %v, of 512³ %v", small, large)
	}
}

// fakePython answers like the baselines do, from a script.
func fakePython(t *testing.T, script string) Options {
	t.Helper()
	dir := t.TempDir()
	python := filepath.Join(dir, "python")
	if err := os.WriteFile(python, []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	return Options{Python: python, Baselines: "baselines"}
}

func items() []*CPURow {
	var list []*CPURow
	for _, name := range []string{matmulItem(1024), matmulItem(2048), attentionForward, attentionBoth, adamItem, stepItem, matmulItem(1024) + halfSuffix, stepItem + halfSuffix} {
		list = append(list, &CPURow{Name: name, Ours: 100, memory: name == adamItem})
	}
	list[5].done, list[6].done = 0.75, 0.5
	return list
}

func TestBaselinesAreRun(t *testing.T) {
	o := fakePython(t, `case "$1" in
*torch_matmul.py*) if echo "$@" | grep -q bfloat16; then echo '{"version": "9", "results": [{"n": 1024, "gflops": 400}]}'; exit; fi
echo '{"version": "9", "results": [{"n": 1024, "gflops": 50}, {"n": 2048, "gflops": 200}]}';;
*numpy_matmul.py) echo '{"version": "7", "results": [{"n": 1024, "gflops": 25}]}';;
*torch_attention.py) echo '{"version": "9", "results": [{"pass": "forward", "gflops": 80}, {"pass": "forward+backward", "gflops": 40}]}';;
*torch_adamw.py) echo '{"version": "9", "results": [{"kind": "fused", "gb_per_s": 10}, {"kind": "foreach", "gb_per_s": 999}]}';;
*torch_llama_step.py) echo "{\"version\": \"9\", \"results\": [{\"gflops\": $(echo "$@" | grep -c -- '--layers 6.*--untied')$(echo "$@" | grep -c -- '--dtype bfloat16')}]}";;
esac
`)
	r := &CPUReport{Results: items(), Peak: 200}
	(&baselines{Options: o}).once(context.Background(), r, func(string) {})
	if len(r.Notes) > 0 || strings.Join(r.Baselines, ", ") != "PyTorch 9, numpy 7" {
		t.Fatalf("notes %v, baselines %v", r.Notes, r.Baselines)
	}
	r.Memory = 125
	r.conclude()
	if r.Peak != 200 || r.Memory != 125 {
		t.Errorf("peaks %v and %v", r.Peak, r.Memory)
	}
	for i, want := range []float64{2, 0.5, 1.25, 2.5, 10, 10, 0.25, 100. / 11} {
		if got := r.Results[i].Ratio[torch]; math.Abs(got-want) > 1e-9 {
			t.Errorf("%s: ratio %v, want %v", r.Results[i].Name, got, want)
		}
	}
	if r.Results[0].Ratio[numpy] != 4 || r.Results[0].Share != 0.5 || r.Results[4].Share != 0.8 || r.Results[5].Share != 0.375 || r.Results[6].Share != 0.25 {
		t.Errorf("%+v %+v %+v", r.Results[0], r.Results[4], r.Results[5])
	}
}

// Only what was asked for is prepared, and only baselines that measure it are run.
func TestBenchOnlyWhatIsWanted(t *testing.T) {
	dev := cpu.Open(cpu.Options{})
	defer dev.Close()
	rows, _, err := cpuRows(dev, machine.Machine{}, Options{Only: "matmul 1024,forward"})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, i := range rows {
		names = append(names, i.Name)
	}
	if got := strings.Join(names, ", "); got != "matmul 1024³, matmul 1024³ in bf16, attention forward" {
		t.Errorf("prepared %s", got)
	}
	asked := map[string]bool{}
	(&baselines{Options: fakePython(t, "exit 1")}).once(context.Background(), &CPUReport{Results: rows[2:]}, func(name string) { asked[name] = true })
	if len(asked) != 1 || !asked["PyTorch, torch_attention"] {
		t.Errorf("asked %v", asked)
	}
	if _, _, err := cpuRows(dev, machine.Machine{}, Options{Only: "nothing"}); err == nil {
		t.Error("a bench of nothing was prepared")
	}
}

// A missing library gets one note and is not tried again.
func TestBaselinesMissing(t *testing.T) {
	count := filepath.Join(t.TempDir(), "count")
	o := fakePython(t, "echo x >> "+count+"\necho 'ModuleNotFoundError: No module named torch' >&2\nexit 1\n")
	r := &CPUReport{Results: items()}
	p := (&baselines{Options: o})
	for range 3 {
		p.once(context.Background(), r, func(string) {})
	}
	asked, err := os.ReadFile(count)
	if err != nil || strings.Count(string(asked), "x") != len(BaselineNames) || len(r.Notes) != len(BaselineNames) {
		t.Errorf("asked %q times, notes %v, %v", asked, r.Notes, err)
	}
	if !strings.Contains(r.Notes[0], "No module named torch") {
		t.Errorf("notes %v", r.Notes)
	}
}
