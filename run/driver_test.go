package run

import (
	"errors"
	"fmt"
	"testing"

	"spillway/device"
	"spillway/device/cpu"
	"spillway/machine"
	"spillway/op"
	"spillway/plan"
)

// countedGPU computes on the CPU and counts like the driver of a GPU: a context, arenas, and
// kernels, which are loaded when a plan asks for them.
type countedGPU struct {
	*cpu.Device
	kernels map[string]bool
}

const (
	countedContext = 300 << 20
	countedKernel  = 1 << 20 // each
)

func (g *countedGPU) Info() device.Info {
	i := g.Device.Info()
	i.Name, i.OnHost, i.Overhead = "cuda:0", false, countedContext+countedKernel*int64(len(g.kernels))
	return i
}

func (g *countedGPU) Kernel(c op.Call) (device.Kernel, error) {
	g.kernels[c.String()] = true
	return g.Device.Kernel(c)
}

func (g *countedGPU) Memory() (free, total int64, err error) {
	used, err := g.Used()
	return 8<<30 - used, 8 << 30, err
}

func (g *countedGPU) Used() (int64, error) {
	now, _ := g.Allocated()
	return now + g.Info().Overhead, nil
}

func (g *countedGPU) Footprint(onDevice, host int64) int64 {
	now, _ := g.Allocated()
	return now + g.Info().Overhead + onDevice + host/512
}

// A limit on a GPU is what the driver counts, though kernels are only known when a plan is: a
// plan stays within it, one percent less than it takes gives another plan, and less than the
// context a refusal with both numbers.
func TestLimitsAreWhatTheDriverCounts(t *testing.T) {
	described, err := machine.Parse(fmt.Sprintf("gpu:8GiB@usable=4GiB/context=%dB,host:16GiB", countedContext))
	if err != nil {
		t.Fatal(err)
	}
	described.Devices[0].Name = "cuda:0"
	m, err := Open("llama-50m")
	if err != nil {
		t.Fatal(err)
	}
	var held int64 // by a plan that the next one replaces
	plans := func(limit string) (*Run, *countedGPU, error) {
		gpu := &countedGPU{cpu.Open(cpu.Options{Threads: 1, Limit: 4 << 30}), map[string]bool{}}
		t.Cleanup(func() {
			if err := gpu.Close(); err != nil {
				t.Error(err)
			}
		})
		arena, err := gpu.Alloc(held)
		if err != nil {
			t.Fatal(err)
		}
		defer arena.Free()
		r, err := m.Plan(Options{Task: Train, Machine: described, On: []device.Device{gpu}, MicroBatchSize: 1, Seq: 128, MaxMemory: limit})
		return r, gpu, err
	}
	all, gpu, err := plans("")
	if err != nil {
		t.Fatal(err)
	}
	counted := func(r *Run, gpu *countedGPU) int64 {
		onDevice, pinned := arenaBytes(r.Plan, 1)
		return gpu.Footprint(onDevice[0], pinned)
	}
	for _, share := range []float64{1, 0.99, 0.8, 0.6} {
		limit := int64(share * float64(counted(all, gpu)))
		r, gpu, err := plans(fmt.Sprint(limit))
		if err != nil {
			t.Fatalf("%.2f: %v", share, err)
		}
		if n := counted(r, gpu); n > limit || n < limit/2 {
			t.Errorf("%.2f: the driver counts %d of %d", share, n, limit)
		}
		if device := r.Plan.Devices[0]; device.Context < gpu.Info().Overhead-32<<20 || device.Budget+device.Context != limit {
			t.Errorf("%.2f: %d for arenas and %d for context and kernels of %d", share, device.Budget, device.Context, limit)
		}
		if same := r.Plan.Peak()[plan.OnDevice] == all.Plan.Peak()[plan.OnDevice]; same != (share == 1) {
			t.Errorf("%.2f: the same plan: %v", share, same)
		}
	}
	tight := fmt.Sprint(counted(all, gpu) * 8 / 10)
	alone, _, err := plans(tight)
	if err != nil {
		t.Fatal(err)
	}
	held = 500 << 20
	if r, _, err := plans(tight); err != nil || r.Plan.Devices[0] != alone.Plan.Devices[0] {
		t.Errorf("in place of another plan: %v, %v", r, err)
	}
	var setting *SettingError
	if _, _, err := plans("200MiB"); !errors.As(err, &setting) {
		t.Errorf("less than the context: %v", err)
	}
}
