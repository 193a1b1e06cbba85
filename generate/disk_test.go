package generate_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"spillway"
	"spillway/device"
	"spillway/device/cpu"
	"spillway/generate"
	"spillway/machine"
	"spillway/plan"
	"spillway/planner/strategy"
	"spillway/run"
)

// Weights that come from the model's file in every token give the bits of weights in memory, and the disk fills
// memory of the CPU itself. When somebody writes to the file, or cuts it, the text ends with an error: no token is made of
// old and new weights.
func TestFromDisk(t *testing.T) {
	g := run.Generation{Context: 64, Chunk: 16}
	prompt := text(3, 9)
	want := logitsFrom(t, session(t, "llama", g), prompt, 12)
	for _, c := range []struct {
		name   string
		change func(file string) error
		says   string
	}{
		{"stays", func(string) error { return nil }, ""},
		{"replaced", func(file string) error {
			if err := os.WriteFile(file+".new", make([]byte, 100), 0o600); err != nil {
				return err
			}
			return os.Rename(file+".new", file)
		}, ""},
		{"written to", func(file string) error {
			f, err := os.OpenFile(file, os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			if _, err := f.WriteAt([]byte{1, 2, 3, 4}, 50_000); err != nil {
				return err
			}
			return f.Close()
		}, "changed while it was read"},
		{"cut", func(file string) error { return os.Truncate(file, 60_000) }, "was opened"},
	} {
		t.Run(c.name, func(t *testing.T) {
			folder := t.TempDir()
			must(t, os.CopyFS(folder, os.DirFS("../testdata/reference/llama")))
			file := filepath.Join(folder, "model.safetensors")
			must(t, os.Chtimes(file, time.Time{}, time.Now().Add(-time.Hour))) // clocks of files are coarse
			job := startFromDisk(t, folder, g)
			reads := 0
			for _, s := range job.Plan.Instructions {
				if s.Verb == plan.Move && job.Plan.TierOf(s.Src) == plan.OnDisk {
					if reads++; job.Plan.TierOf(s.Dst) != plan.OnDevice {
						t.Errorf("weights go from the disk to memory of tier %s first", job.Plan.TierOf(s.Dst))
					}
				}
			}
			if reads < 3 {
				t.Errorf("a step reads the disk %d times", reads)
			}
			e, err := generate.NewSession(job)
			must(t, err)
			q := add(t, e, prompt)
			for i, logits := range want {
				if i == 5 {
					must(t, c.change(file))
				}
				err := e.Step(context.Background())
				if i >= 5 && c.says != "" {
					if err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), file) {
						t.Errorf("the file is %s: %v", c.name, err)
					}
					if q.Ready() {
						t.Error("there are logits all the same")
					}
					return
				}
				if must(t, err); !slices.Equal(q.Logits(), logits) {
					t.Fatalf("logits of token %d are others than with weights in memory", i)
				}
				must(t, q.Append(next(logits)))
			}
		})
	}
}

// startFromDisk starts a run that reads its weights from the disk in every step, into memory that a CPU shares with the host.
func startFromDisk(t *testing.T, folder string, g run.Generation) *spillway.Run {
	t.Helper()
	m, err := spillway.Open(folder)
	must(t, err)
	on, err := machine.Parse("cpu:1GiB@shared,host:4GiB")
	must(t, err)
	dev := cpu.Open(cpu.Options{})
	job, err := m.Plan(spillway.Options{Task: spillway.Generate, Generation: g, Machine: on, On: []device.Device{dev}, Disk: t.TempDir(), Constraints: strategy.Constraints{Weights: plan.OnDisk}})
	must(t, err)
	must(t, job.Start())
	t.Cleanup(func() { must(t, errors.Join(job.Close(), dev.Close(), m.Close())) })
	return job
}

// logitsFrom are those after a prompt and after each of the most likely tokens.
func logitsFrom(t *testing.T, e generate.Engine, prompt []int32, tokens int) (all [][]float32) {
	t.Helper()
	q := add(t, e, prompt)
	for range tokens {
		step(t, e)
		all = append(all, slices.Clone(q.Logits()))
		must(t, q.Append(next(q.Logits())))
	}
	return all
}

// next is the most likely token.
func next(logits []float32) int32 { return int32(slices.Index(logits, slices.Max(logits))) }

// On a CPU with a limit embeddings are looked up in host memory: their table never streams, and logits stay what they are.
func TestLimitedCPULooksEmbeddingsUp(t *testing.T) {
	g := run.Generation{Context: 64, Chunk: 16}
	prompt := text(5, 9)
	want := logitsFrom(t, session(t, "llama", g), prompt, 6)
	m, err := spillway.Open("../testdata/reference/llama")
	must(t, err)
	on, err := machine.Parse("cpu:1GiB@shared,host:4GiB")
	must(t, err)
	dev := cpu.Open(cpu.Options{})
	o := spillway.Options{Task: spillway.Generate, Generation: g, Machine: on, On: []device.Device{dev}}
	all, err := m.Plan(o)
	must(t, err)
	o.MaxMemory = fmt.Sprintf("%dKiB", all.Plan.Peak()[plan.OnDevice]*6/10>>10)
	job, err := m.Plan(o)
	must(t, err)
	f, err := job.ForecastGeneration()
	must(t, err)
	if d := f.Division; d == nil || d.CPU != 1 || d.CPUBytes != 0 || d.Stream == 0 {
		t.Errorf("within %s: %+v", o.MaxMemory, d)
	}
	step, err := job.Plan.Phase(plan.Step(1))
	must(t, err)
	for _, s := range step.Instructions {
		if s.Verb == plan.Move && s.Block == 0 && job.Plan.Buffers[s.Src].Class == plan.Weight {
			t.Errorf("%s streams", job.Plan.Buffers[s.Src].Name)
		}
	}
	must(t, job.Start())
	e, err := generate.NewSession(job)
	must(t, err)
	for i, logits := range logitsFrom(t, e, prompt, 6) {
		if !slices.Equal(logits, want[i]) {
			t.Errorf("logits of token %d are others than with all weights on the device", i)
		}
	}
	must(t, errors.Join(job.Close(), dev.Close(), m.Close()))
}
