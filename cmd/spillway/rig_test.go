package main

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"spillway/device"
	"spillway/device/cpu"
	"spillway/machine"
	"spillway/plan"
	"spillway/rig"
	spillwayrun "spillway/run"
)

// fakeDriver opens devices that compute on the CPU and say that they are GPUs. There are as
// many as fakeGPUs said last.
type fakeDriver struct{ gpus int }

var fakes = &fakeDriver{}

func init() { device.Register("fake", fakes) }

func (f *fakeDriver) Open(config string, _ device.Options) (device.Device, error) {
	ordinal, err := strconv.Atoi(config)
	if err != nil {
		return nil, err
	}
	if ordinal >= f.gpus {
		return nil, &device.AbsentError{Reason: fmt.Sprintf("there are %d GPUs", f.gpus)}
	}
	return fakeGPU{cpu.Open(cpu.Options{Limit: 2 << 30}), ordinal}, nil
}

type fakeGPU struct {
	*cpu.Device
	ordinal int
}

const fakeTotal = 24564 << 20

func (g fakeGPU) Model() string            { return "NVIDIA GeForce RTX 4090" }
func (g fakeGPU) Address() (string, error) { return fmt.Sprintf("00000000:%02x:00.0", g.ordinal), nil }
func (g fakeGPU) Memory() (free, total int64, err error) {
	now, _ := g.Allocated()
	return fakeTotal - 500<<20 - now, fakeTotal, nil
}

func (g fakeGPU) Used() (int64, error) {
	now, _ := g.Allocated()
	return 500<<20 + now, nil
}

func (g fakeGPU) Footprint(onDevice, host int64) int64 {
	now, _ := g.Allocated()
	return 500<<20 + now + onDevice + host/512
}

// Info has the name of a GPU.
func (g fakeGPU) Info() device.Info {
	i := g.Device.Info()
	i.Name, i.OnHost = fmt.Sprintf("fake:%d", g.ordinal), false
	return i
}

// fakeGPUs is a shell of a computer with some GPUs. Nothing is measured: what takes a GPU a
// moment takes the CPU a minute.
func fakeGPUs(t *testing.T, n int) shell {
	t.Helper()
	fakes.gpus = n
	return shell{out: &bytes.Buffer{}, err: &bytes.Buffer{}, in: strings.NewReader(""), cache: cache, drivers: []string{"fake"}, assumes: true}
}

// What the driver counts of two GPUs is what was predicted and what is used.
func TestDriverMemory(t *testing.T) {
	r, err := fakeGPUs(t, 2).open("fake:0,fake:1", rig.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if used, err := r.DriverUsed(); err != nil || used != 2*(500<<20) {
		t.Errorf("the driver counts %d, %v", used, err)
	}
	p := &plan.Plan{Arenas: []plan.Arena{{Tier: plan.OnDevice, Bytes: 10}, {Tier: plan.OnDevice, Device: 1, Bytes: 20}, {Tier: plan.Pinned, Bytes: 1024}}}
	if got := spillwayrun.DriverPredicted(r, p); got != 2*(500<<20+2)+30 {
		t.Errorf("the driver is expected to count %d", got)
	}
}

// train runs on a GPU and reports what its driver counts.
func TestTrainOnGPU(t *testing.T) {
	sh := fakeGPUs(t, 1)
	var out, errs bytes.Buffer
	sh.out, sh.err = &out, &errs
	code := run(context.Background(), []string{"train", "tiny-llama", "--data", prose(t), "--tokenizer", "bytes", "--max-steps", "2", "--batch-size", "2", "--seq-len", "16",
		"--precision", "fp32", "--device", "fake:0", "--out", t.TempDir(), "--json"}, sh)
	v := result{code, out.String(), errs.String()}.object(t)
	arena, counted := at(t, v, "measured_peak_bytes").(float64), at(t, v, "driver_peak_bytes").(float64)
	if code != exitOK || counted != arena+(500<<20) {
		t.Errorf("exit code %d: the driver counts %v, the arena is %v", code, counted, arena)
	}
}

func TestLibraryPaths(t *testing.T) {
	env := map[string]string{"CUDA_HOME": "/opt/cuda", "VIRTUAL_ENV": "/home/me/venv", "LD_LIBRARY_PATH": "/a::/b"}
	got := libraryPaths(func(name string) string { return env[name] })
	if want := []string{"/opt/cuda", "/home/me/venv", "/a", "/b"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// The verb devices lists every GPU, and says why there is none.
func TestDevicesListsGPUs(t *testing.T) {
	r, err := describeComputer(fakeGPUs(t, 2), "all", rig.Options{})
	if err != nil || len(r.GPUs) != 2 || len(r.Devices) != 3 || r.GPUs[1].Total != fakeTotal {
		t.Fatalf("%+v, %v", r.GPUs, err)
	}
	var text strings.Builder
	if err := r.GPUs[0].write(&text); err != nil || !strings.Contains(text.String(), "RTX 4090") {
		t.Errorf("%q, %v", text.String(), err)
	}
	none, err := describeComputer(fakeGPUs(t, 0), "all", rig.Options{})
	if err != nil || len(none.GPUs) != 0 || none.Devices[0].Kind != machine.CPU || !slices.Contains(none.Notes, "device: CPU (there are 0 GPUs)") {
		t.Errorf("%+v, %v", none, err)
	}
}
