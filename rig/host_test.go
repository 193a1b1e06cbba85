package rig

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"spillway/machine"
	"spillway/op"
	"spillway/units"
)

// fake is a computer of files under testdata.
func fake(name string) System {
	return System{Proc: filepath.Join("testdata", name, "proc"), Cgroup: filepath.Join("testdata", name, "cgroup")}
}

// Every tree has 16 GiB installed and 8 GiB available, but for "none", which says
// only that 1 GiB is free.
func TestMemoryLimits(t *testing.T) {
	const g = units.GiB
	for name, want := range map[string]struct{ limit, usable units.Bytes }{
		"none":         {0, 1 * g},
		"max":          {0, 8 * g},
		"v1":           {4 * g, 3 * g},
		"v1-container": {2 * g, 1 * g},
		"v2":           {5 * g, 3 * g},
		"nested":       {5 * g, 1 * g},
		"hybrid":       {3 * g, 3 * g},
		"full":         {1 * g, 0},
		"damaged":      {0, 8 * g},
	} {
		f, err := fake(name).readFacts()
		if err != nil {
			t.Fatal(err)
		}
		want.usable = max(want.usable-ProgramOverhead, 0)
		if f.memory != 16*g || f.limit != want.limit || f.usable != want.usable {
			t.Errorf("%s: %v installed, limit %v, usable %v; want 16 GiB, %v, %v", name, f.memory, f.limit, f.usable, want.limit, want.usable)
		}
		if wantNote := name == "none" || name == "damaged"; wantNote != (len(f.notes) > 0) {
			t.Errorf("%s: notes %q", name, f.notes)
		}
	}
	if now, err := fake("nested").Usable(); now != 1*g-ProgramOverhead || err != nil {
		t.Errorf("%v may be taken now, %v", now, err)
	}
	if _, err := fake("absent").Usable(); err == nil {
		t.Error("nobody knows what is left, and nobody says so")
	}
	if _, err := fake("absent").readFacts(); err == nil {
		t.Error("a computer without meminfo was accepted")
	}
}

func TestCPUFacts(t *testing.T) {
	for name, want := range map[string]struct{ cpu, features string }{
		"v1":   {"Intel(R) Xeon(R) Processor @ 2.80GHz", "avx avx2 fma f16c avx512f avx512bw avx512vl avx512_vnni"},
		"none": {"arm implementer 0x41 part 0xd40", "asimd asimdhp asimddp bf16 i8mm sve"},
	} {
		f, err := fake(name).readFacts()
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(f.features, " "); f.cpu != want.cpu || got != want.features {
			t.Errorf("%s: %q with %q", name, f.cpu, got)
		}
	}
}

func TestDescribeFillsTheMachine(t *testing.T) {
	o := quick()
	o.Measure, o.Disk, o.MeasureDisk = true, t.TempDir(), true
	m, err := Describe(nil, o)
	if err != nil {
		t.Fatal(err)
	}
	d, ok := m.Device("cpu0")
	if !ok || len(m.Devices) != 1 || !d.Shared || d.Usable != 3*units.GiB-ProgramOverhead || d.Sources["f32"] != machine.Measured {
		t.Errorf("device %+v", d)
	}
	h := m.Host
	if h.Limit != 5*units.GiB || h.Cores < 1 || h.Sources["copy"] != machine.Measured || h.Copy < h.CopyOne || h.Sources["update"] != machine.Measured {
		t.Errorf("host %+v", h)
	}
	if m.Disk.Path != o.Disk || m.Disk.Sources["read"] != machine.Measured || m.Disk.Write <= 0 {
		t.Errorf("disk %+v", m.Disk)
	}
	if left, _ := os.ReadDir(o.Disk); len(left) != 0 {
		t.Errorf("measuring left %v behind", left)
	}
	if tables := d.Tables; len(tables) != 2 || len(tables["f32"]) != 1 {
		t.Errorf("the CPU has the tables %v", tables)
	}
	// What the language can say of a measured machine survives it.
	again, err := machine.Parse(m.String())
	if err != nil || again.Host.Copy != m.Host.Copy || again.Host.Update != m.Host.Update || again.Devices[0].Compute != d.Compute || again.Disk.Read != m.Disk.Read || !again.Devices[0].Shared {
		t.Errorf("%s\n%+v\n%+v, %v", m, m, again, err)
	}
}

// Next to a GPU a program takes more than its arenas: a GiB for libraries, and a 64th of
// what it locks.
func TestGPUsTakeHostMemory(t *testing.T) {
	fakeComputer(1)
	var usable []units.Bytes
	for _, name := range []string{"cpu", "fake:0"} {
		r, err := Open(name, quick())
		if err != nil {
			t.Fatal(err)
		}
		if now, err := UsableHost(r.Machine, quick().System); err != nil || now != r.Machine.Host.Usable {
			t.Errorf("now %v, %v; when described %v", now, err, r.Machine.Host.Usable)
		}
		usable = append(usable, r.Machine.Host.Usable)
		r.Close()
	}
	if left := usable[0] - units.GiB; usable[1] != left-left/64 {
		t.Errorf("usable %v, next to a GPU %v", usable[0], usable[1])
	}
}

func TestDescribeNamesWhatItAssumes(t *testing.T) {
	o := quick()
	o.Disk = t.TempDir()
	m, err := Describe(nil, o)
	if err != nil {
		t.Fatal(err)
	}
	if m.Host.Sources["update"] != machine.Assumed || m.Host.Update != 2*m.Host.Copy {
		t.Errorf("updates at %v, copies at %v: %v", m.Host.Update, m.Host.Copy, m.Host.Sources)
	}
	if m.Host.Sources["f32"] != machine.Assumed || m.Devices[0].Sources["f32"] != machine.Assumed || m.Disk.Sources["read"] != machine.Assumed {
		t.Errorf("host %v, device %v, disk %v", m.Host.Sources, m.Devices[0].Sources, m.Disk.Sources)
	}
	if text := m.Describe(); !strings.Contains(text, "matmuls and optimizer steps were not measured") || !strings.Contains(text, "disk were not measured") {
		t.Errorf("Describe does not say what was not measured:\n%s", text)
	}
	o.Disk = filepath.Join(o.Disk, "absent")
	if _, err := Describe(nil, o); err == nil || !strings.Contains(err.Error(), "absent") {
		t.Errorf("a folder that is not there: %v", err)
	}
	o = quick()
	o.System = fake("full")
	if _, err := Describe(nil, o); err == nil {
		t.Error("a computer without usable memory was accepted")
	}
}

// timesMeasured counts the measurements that o reports.
func timesMeasured(o *Options) *int {
	n := 0
	o.Report = func(string) { n++ }
	return &n
}

// hasNote says whether a note contains some words.
func hasNote(m machine.Machine, words string) bool {
	return slices.ContainsFunc(m.Notes, func(n string) bool { return strings.Contains(n, words) })
}

func TestRatesAreCached(t *testing.T) {
	o := quick()
	o.Cache, o.Measure = filepath.Join(t.TempDir(), "cache"), true
	measured := timesMeasured(&o)
	describe := func(what string, wantMeasured bool) machine.Machine {
		t.Helper()
		before := *measured
		m, err := Describe(nil, o)
		if err != nil {
			t.Fatal(err)
		}
		if got := *measured > before; got != wantMeasured {
			t.Errorf("%s: measured %v, want %v", what, got, wantMeasured)
		}
		return m
	}
	first := describe("the first time", true)
	if second := describe("the second time", false); !reflect.DeepEqual(first, second) {
		t.Errorf("cached rates differ:\n%+v\n%+v", first, second)
	}
	o.Measure = false
	if third := describe("without leave to measure", false); !reflect.DeepEqual(first, third) {
		t.Errorf("cached rates differ:\n%+v\n%+v", first, third)
	}
	o.Measure, o.Calibrate = true, true
	describe("asked to calibrate", true)
	o.Calibrate = false
	files, err := filepath.Glob(filepath.Join(o.Cache, "*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("the cache holds %v, %v", files, err)
	}
	for text, note := range map[string]string{`{"version": 999}`: "", "{half": "were ignored", fmt.Sprintf(`{"version": %d, "key": "KEY"}`, cacheVersion): "no rates"} {
		text = strings.Replace(text, "KEY", keyIn(t, files[0]), 1)
		if err := os.WriteFile(files[0], []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if m := describe("a cache with "+text, true); note != "" && !hasNote(m, note) {
			t.Errorf("%q is not in the notes: %q", note, m.Notes)
		}
	}
	o.Cache = "/dev/null/x"
	if m := describe("a cache that cannot be written", true); !hasNote(m, "could not be stored") {
		t.Errorf("notes %q", m.Notes)
	}
}

// keyIn is the key of an entry.
func keyIn(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var e entry
	if err := json.Unmarshal(text, &e); err != nil {
		t.Fatal(err)
	}
	return e.Key
}

// Rates of a GPU are measured when that is asked for, and stay in the cache.
func TestGPURatesAreCached(t *testing.T) {
	fakeComputer(1)
	o := quick()
	o.Cache = t.TempDir()
	r, err := Open("fake:0", o)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if s := r.Machine.Devices[0].Sources["bf16"]; s != machine.Published {
		t.Errorf("bf16 is %v", s)
	}
	measured := machine.Device{Link: machine.Link{In: 1e9, Out: 2e9, Bidirectional: 0.8}, Bandwidth: 3e9, Compute: machine.Compute{F32: 4e9}}
	measured.Tables = machine.Tables{"bf16": {{Kind: op.Add}: {Axes: [][]int64{{1, 2}}, Rates: []float64{3, 4}}}}
	if _, err := o.cached(deviceKey(r.Devices[0]), nil, func(e *entry) error { e.Device = &measured; return nil }); err != nil {
		t.Fatal(err)
	}
	again, err := Describe(r.Devices, o)
	if err != nil {
		t.Fatal(err)
	}
	d := again.Devices[0]
	if d.Link.In != 1e9 || d.Sources["in"] != machine.Measured || d.Compute.F32 != 4e9 || d.Sources["bf16"] != machine.Published || len(d.Tables) != 1 {
		t.Errorf("%+v", d)
	}
	// Whoever knows name and address of the GPU finds its link without opening it.
	if link, has := MeasuredLink(o.Cache, "NVIDIA GeForce RTX 4090", "00000000:00:00.0"); !has || link.In != 1e9 || link.Out != 2e9 {
		t.Errorf("%v %+v", has, link)
	}
	if _, has := MeasuredLink(o.Cache, "NVIDIA GeForce RTX 4090", "00000000:01:00.0"); has {
		t.Error("another slot has the same link")
	}
}

// The host's rates are the same whether a disk is measured too: what was measured again with
// one, as spillway devices does, counts without.
func TestDisksAreCachedApart(t *testing.T) {
	o := quick()
	o.Cache, o.Measure = t.TempDir(), true
	describe := func(disk, calibrate bool) machine.Machine {
		t.Helper()
		with := o
		if with.Calibrate = calibrate; disk {
			with.Disk, with.MeasureDisk, with.sizes.diskBytes = t.TempDir(), true, units.MiB
		}
		m, err := Describe(nil, with)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	first := describe(false, false)
	if with := describe(true, false); !reflect.DeepEqual(with.Host, first.Host) || with.Disk.Sources["read"] != machine.Measured {
		t.Errorf("with a disk the host is %+v, without %+v; disk %+v", with.Host, first.Host, with.Disk)
	}
	again := describe(true, true)
	if last := describe(false, false); !reflect.DeepEqual(last.Host, again.Host) || last.Host.Update == first.Host.Update {
		t.Errorf("measured again with a disk %+v, then without %+v, at first %+v", again.Host, last.Host, first.Host)
	}
}

// A disk that had no space to be measured is measured when it has.
func TestFullDisksAreMeasuredLater(t *testing.T) {
	o := quick()
	o.Cache, o.Disk, o.MeasureDisk, o.sizes.diskBytes = t.TempDir(), t.TempDir(), true, 1<<60
	for _, want := range []machine.Source{machine.Assumed, machine.Measured} {
		m, err := Describe(nil, o)
		if err != nil {
			t.Fatal(err)
		}
		if m.Disk.Sources["read"] != want {
			t.Errorf("a file of %v: the disk's rate is %v, want %v", o.sizes.diskBytes, m.Disk.Sources["read"], want)
		}
		o.sizes.diskBytes = units.MiB
	}
}

// The real computer must at least give a machine that checks out.
func TestThisComputer(t *testing.T) {
	m, err := Describe(nil, Options{sizes: hostSizes{copyBytes: 8 * units.MiB}})
	if err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + m.Describe())
}

func TestCopyChunks(t *testing.T) {
	from := make([]byte, 2*copyChunk+17)
	for i := range from {
		from[i] = byte(i * 7)
	}
	to := make([]byte, len(from))
	copyChunks(to, from)
	if !slices.Equal(from, to) {
		t.Error("chunks lost bytes")
	}
}
