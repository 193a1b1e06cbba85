package bench

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"spillway"
	"spillway/device"
	"spillway/device/cpu"
	"spillway/machine"
	"spillway/planner/strategy"
	"spillway/rig"
	"spillway/trace"
)

// What a lane did adds up to the time of the iteration, with what it waited.
func TestSpentAddsUp(t *testing.T) {
	lane := trace.Lane{Device: "gpu0", Queue: "compute"}
	other := trace.Lane{Device: "gpu0", Queue: "in"}
	got := timeByKind([]trace.Event{
		{Verb: trace.Move, Name: "weights", Lane: other, Start: 1e9, End: 2e9},
		{Verb: trace.Run, Name: "layers forward", Lane: lane, Start: 2e9, End: 4e9},
		{Verb: trace.Run, Name: "layers forward", Lane: lane, Start: 5e9, End: 6e9},
		{Verb: trace.Free, Lane: lane},
		{Verb: trace.Update, Name: "layers.0", Lane: lane, Start: 6e9, End: 6.5e9},
		{Verb: trace.Move, Name: "weights", Lane: other, Start: 6.5e9, End: 8e9},
		{Verb: trace.Update, Name: "layers.1", Lane: trace.Lane{Device: "host", Queue: "compute"}, Start: 90e9, End: 91e9},
	}, lane)
	want := map[string]float64{"layers forward": 3, "update": 0.5, "waiting": 3.5}
	if len(got) != len(want) {
		t.Errorf("%v, want %v", got, want)
	}
	for name, seconds := range want {
		if got[name] != seconds {
			t.Errorf("%s took %v, want %v", name, got[name], seconds)
		}
	}
}

// One training in two places ends with one digest, another training with another, and
// the report says so.
func TestTwinsAreCompared(t *testing.T) {
	digest := func(name, model string, choose func(slabs, blocks int) strategy.Choice) *GPURow {
		row := &GPURow{Name: name, model: model, options: work(spillway.Train, 1, 8, 0, choose), twin: "the other"}
		iterateOnCPU(t, row)
		return row
	}
	here := digest("this", "../testdata/reference/llama", savedAll)
	there := digest("the other", here.model, fromHost)
	here.twin, there.twin = there.Name, ""
	if here.Digest == "" || here.Digest != there.Digest || here.Seconds <= 0 || here.Spent["update"] <= 0 {
		t.Fatalf("%+v and %+v", here, there)
	}
	r := &GPUReport{Results: []*GPURow{here, there}}
	file := filepath.Join(t.TempDir(), "timeline.json")
	if err := r.saveTimeline(file); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(file); err != nil || !strings.Contains(string(text), "update") {
		t.Errorf("the timeline is %q: %v", text, err)
	}
	if r.conclude(); len(r.Bits) != 1 || !strings.Contains(r.Bits[0], "the same losses and weights") {
		t.Errorf("bits: %v", r.Bits)
	}
	there.Digest = digest("another", "../testdata/reference/qwen2", savedAll).Digest
	if r.conclude(); len(r.Bits) != 1 || !strings.Contains(r.Bits[0], "OTHER") {
		t.Errorf("bits: %v", r.Bits)
	}
}

// iterateOnCPU runs a row as it is run on a GPU.
func iterateOnCPU(t *testing.T, row *GPURow) {
	t.Helper()
	dev := cpu.Open(cpu.Options{Threads: 1})
	defer dev.Close()
	m, err := openBench(row.model)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	here, err := machine.Parse("cpu:1GiB,host:4GiB")
	if err != nil {
		t.Fatal(err)
	}
	job, err := m.Plan(row.request(here, &rig.Rig{Devices: []device.Device{dev}}))
	if err != nil {
		t.Fatal(err)
	}
	if err := job.StartNoise(1); err != nil {
		t.Fatal(err)
	}
	defer job.Close()
	e := job.Executor()
	if err := fillParts(e, m.Info.Vocab, 0); err != nil {
		t.Fatal(err)
	}
	if err := row.iterate(context.Background(), e, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
}
