package main

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"spillway/device"
	"spillway/device/cpu"
	"spillway/device/cuda"
	"spillway/device/cuda/driver"
	"spillway/machine"
	"spillway/op"
	"spillway/plan"
	"spillway/probe"
	"spillway/units"
)

// fakeCard computes on the CPU and says that it is a card.
type fakeCard struct {
	*cpu.Device
	ordinal int
}

const fakeTotal = 24564 << 20

func (c fakeCard) GPUName() string          { return "NVIDIA GeForce RTX 4090" }
func (c fakeCard) Address() (string, error) { return fmt.Sprintf("00000000:%02x:00.0", c.ordinal), nil }
func (c fakeCard) Memory() (free, total int64, err error) {
	now, _ := c.Allocated()
	return fakeTotal - 500<<20 - now, fakeTotal, nil
}

func (c fakeCard) Footprint(card, host int64) int64 {
	now, _ := c.Allocated()
	return 500<<20 + now + card + host/512
}

// fakeCards is a shell of a computer with some cards.
func fakeCards(t *testing.T, n int, opened *[]cuda.Options) shell {
	t.Helper()
	return shell{out: &bytes.Buffer{}, err: &bytes.Buffer{}, in: strings.NewReader(""), cache: cache, openGPU: func(o cuda.Options) (gpuDevice, error) {
		if o.Ordinal >= n {
			return nil, fmt.Errorf("opening card %d: %w", o.Ordinal, &cuda.NoGPUError{GPUs: n})
		}
		*opened = append(*opened, o)
		limit := o.Limit
		if limit == 0 {
			limit = 2 << 30
		}
		return fakeCard{cpu.Open(cpu.Options{Limit: limit}), o.Ordinal}, nil
	}}
}

// Info has the name of a card.
func (c fakeCard) Info() device.Info {
	i := c.Device.Info()
	i.Name = fmt.Sprintf("cuda:%d", c.ordinal)
	return i
}

func TestDeviceNames(t *testing.T) {
	for names, want := range map[string]deviceChoice{
		"":                   {},
		"cpu":                {cpus: 1},
		"cpu,cpu":            {cpus: 2},
		"cuda":               {gpus: []cuda.Options{{}}},
		"cuda:1":             {gpus: []cuda.Options{{Ordinal: 1}}},
		"cuda:0/2,cuda:0/2":  {gpus: []cuda.Options{{Share: 2}, {Share: 2}}},
		"cuda:0,cuda:1,tf32": {gpus: []cuda.Options{{TF32: true}, {Ordinal: 1, TF32: true}}},
	} {
		got, err := parseDevices(names)
		if err != nil || got.cpus != want.cpus || !slices.EqualFunc(got.gpus, want.gpus, func(a, b cuda.Options) bool { return a.Ordinal == b.Ordinal && a.Share == b.Share && a.TF32 == b.TF32 }) {
			t.Errorf("%q is %+v, %v; want %+v", names, got, err, want)
		}
	}
	for _, names := range []string{"gpu", "cuda:-1", "cuda:x", "cuda:0/0", "cuda:0/", "cpu,cuda:0", "cuda:0,", "tpu:1", "tf32", "cpu,tf32"} {
		if got, err := parseDevices(names); err == nil {
			t.Errorf("%q is %+v", names, got)
		}
	}
}

// Without --device the first card is taken, and without a card the CPU, with a reason.
func TestFirstDevice(t *testing.T) {
	var opened []cuda.Options
	r, err := fakeCards(t, 1, &opened).rig("", machine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	if r.device.Kind != machine.GPU || r.device.Model != "rtx4090" || r.device.Memory != fakeTotal || r.why == "" || len(opened) != 1 {
		t.Errorf("%+v because %q, opened %v", r.device, r.why, opened)
	}
	none, err := fakeCards(t, 0, &opened).rig("", machine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer none.close()
	if none.device.Kind != machine.CPU || !strings.Contains(none.why, "there are 0 cards") {
		t.Errorf("%+v because %q", none.device, none.why)
	}
	broken := fakeCards(t, 1, &opened)
	broken.openGPU = func(cuda.Options) (gpuDevice, error) { return nil, &driver.Error{Call: "cuInit", Code: 999} }
	if _, err := broken.rig("", machine.Options{}); err == nil || !strings.Contains(err.Error(), "--device cpu") {
		t.Errorf("a card that does not work: %v", err)
	}
}

// A run on two cards opens both, and a limit holds for each.
func TestSeveralDevices(t *testing.T) {
	var opened []cuda.Options
	sh := fakeCards(t, 2, &opened)
	r, err := sh.rig("cuda:0,cuda:1", machine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.limited(sh, 1<<20); err != nil {
		t.Fatal(err)
	}
	defer r.close()
	if len(r.on) != 2 || len(opened) != 4 || opened[3].Limit != 1<<20 || opened[3].Ordinal != 1 {
		t.Errorf("%d devices, opened %+v", len(r.on), opened)
	}
	if held, err := r.held(); err != nil || held != 2*(500<<20) {
		t.Errorf("the driver counts %d, %v", held, err)
	}
	p := &plan.Plan{Arenas: []plan.Arena{{Tier: plan.OnDevice, Bytes: 10}, {Tier: plan.OnDevice, Device: 1, Bytes: 20}, {Tier: plan.Pinned, Bytes: 1024}}}
	if got := r.predicted(p); got != 2*(500<<20+2)+30 {
		t.Errorf("the driver is expected to count %d", got)
	}
	if _, err := sh.rig("cuda:2", machine.Options{}); err == nil || !strings.Contains(err.Error(), "there are 2 cards") {
		t.Errorf("the third of two cards: %v", err)
	}
}

// train runs on a card, in bf16 as the processor cannot tell, and reports the driver.
func TestTrainOnCard(t *testing.T) {
	var opened []cuda.Options
	sh := fakeCards(t, 1, &opened)
	var out, errs bytes.Buffer
	sh.out, sh.err = &out, &errs
	code := run(context.Background(), []string{"train", "tiny-llama", "--data", prose(t), "--tokenizer", "bytes", "--steps", "2", "--batch", "2", "--seq", "16",
		"--precision", "fp32", "--device", "cuda:0", "--out", t.TempDir(), "--json"}, sh)
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

// The verb devices lists every card, and says why there is none.
func TestDevicesListsCards(t *testing.T) {
	var opened []cuda.Options
	r, err := describeComputer(fakeCards(t, 2, &opened), machine.Options{})
	if err != nil || len(r.GPUs) != 2 || len(r.Devices) != 3 || r.GPUs[1].Total != fakeTotal {
		t.Errorf("%+v, %v", r.GPUs, err)
	}
	var text strings.Builder
	if err := r.GPUs[0].write(&text); err != nil || !strings.Contains(text.String(), "RTX 4090") {
		t.Errorf("%q, %v", text.String(), err)
	}
	none, err := describeComputer(shell{out: &text, err: &text, cache: cache}, machine.Options{})
	if err != nil || len(none.GPUs) != 0 || !strings.Contains(strings.Join(none.Notes, " "), errNoGPUs.Error()) {
		t.Errorf("%+v, %v", none, err)
	}
}

// A card that rounds is planned for at the rates of rounded products, and the rates of
// the card as it was stay as they are.
func TestRounding(t *testing.T) {
	plain := machine.Device{Compute: machine.Compute{F32: 60, TF32: 400}, Tables: machine.Tables{"f32": nil, tf32Name: {{Kind: op.MatMul}: {Rates: []float64{1}}}}}
	d := asTF32(plain)
	if d.Compute.F32 != 400 || len(d.Tables["f32"]) != 1 || len(plain.Tables["f32"]) != 0 {
		t.Errorf("%+v of %+v", d, plain)
	}
	if d := asTF32(machine.Device{Compute: machine.Compute{F32: 60}}); d.Compute.F32 != 60 {
		t.Errorf("%+v", d)
	}
}

// A card is measured as it is and as it rounds, and everything is closed again.
func TestMeasureCard(t *testing.T) {
	var opened []cuda.Options
	sh := fakeCards(t, 1, &opened)
	r, err := sh.rig("cuda:0", machine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	var told []string
	sizes := probe.Sizes{Copy: units.MiB, Side: 64, Grid: probe.Grid{Sides: []int64{32}}, Sustained: 5 * time.Millisecond}
	rates, err := sh.measureGPU(r.gpus[0], r.choice.gpus[0], sizes, func(what string) { told = append(told, what) })
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]machine.Compute{"burst": rates.Compute, "lasting": rates.Sustained} {
		if !(c.F32 > 0 && c.TF32 > 0 && c.BF16 > 0) {
			t.Errorf("rates %s are %+v", name, c)
		}
	}
	if len(rates.Tables) != 3 || rates.Tables.Check() != nil || len(opened) != 2 || !opened[1].TF32 || !strings.HasPrefix(told[0], "measuring cuda:0, 0 s: ") {
		t.Errorf("tables %v, opened %+v, told %q", rates.Tables, opened, told)
	}
}
