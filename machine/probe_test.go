package machine

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"spillway/dtype"
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

// quick options measure next to nothing.
func quick() Options {
	return Options{System: fake("v2"), CopyBytes: 256 * units.KiB, DiskBytes: 16 * units.MiB, Version: "1"}
}

func TestProbeFillsTheMachine(t *testing.T) {
	o := quick()
	o.DiskPath, o.MeasureDisk = t.TempDir(), true
	o.Arithmetic = func(ty dtype.Type) (units.Flops, error) {
		if ty == dtype.BF16 {
			return 0, errors.New("no bf16 here")
		}
		return 90e9, nil
	}
	o.Updates = func() (units.Rate, error) { return 33e9, nil }
	m, err := Probe(o)
	if err != nil {
		t.Fatal(err)
	}
	d, ok := m.Device("cpu0")
	if !ok || len(m.Devices) != 1 || !d.Shared || d.Usable != 3*units.GiB-ProgramOverhead || d.Compute.F32 != 90e9 || d.Sources["f32"] != Measured {
		t.Errorf("device %+v", d)
	}
	h := m.Host
	if h.Limit != 5*units.GiB || h.Cores < 1 || h.Compute.BF16 != 0 || h.Sources["copy"] != Measured || h.Copy < h.CopyOne || h.Update != 33e9 || h.Sources["update"] != Measured {
		t.Errorf("host %+v", h)
	}
	if m.Disk.Path != o.DiskPath || m.Disk.Sources["read"] != Measured || m.Disk.Write <= 0 {
		t.Errorf("disk %+v", m.Disk)
	}
	if left, _ := os.ReadDir(o.DiskPath); len(left) != 0 {
		t.Errorf("measuring left %v behind", left)
	}
	if !slices.ContainsFunc(m.Notes, func(n string) bool { return strings.Contains(n, "no bf16 here") }) {
		t.Errorf("the failed measurement is not in the notes: %q", m.Notes)
	}
	// What the language can say of a probed machine survives it.
	again := parse(t, m.String())
	if again.Host.Copy != m.Host.Copy || again.Host.Update != m.Host.Update || again.Devices[0].Compute != d.Compute || again.Disk.Read != m.Disk.Read || !again.Devices[0].Shared {
		t.Errorf("%s\n%+v\n%+v", m, m, again)
	}
}

// Beside a card a program takes more than its arenas: a GiB for libraries, and a 64th of
// what it locks.
func TestCardsTakeHostMemory(t *testing.T) {
	o := quick()
	var usable []units.Bytes
	for _, o.Devices = range [][]Device{nil, {{Name: "cuda:0", Kind: GPU, Memory: 8 * units.GiB, Usable: 8 * units.GiB}}} {
		m, err := Probe(o)
		if err != nil {
			t.Fatal(err)
		}
		if now, err := m.UsableHost(o.System); err != nil || now != m.Host.Usable {
			t.Errorf("now %v, %v; when probed %v", now, err, m.Host.Usable)
		}
		usable = append(usable, m.Host.Usable)
	}
	if left := usable[0] - units.GiB; usable[1] != left-left/64 {
		t.Errorf("usable %v, beside a card %v", usable[0], usable[1])
	}
}

func TestProbeNamesWhatItAssumes(t *testing.T) {
	o := quick()
	o.DiskPath = t.TempDir()
	m, err := Probe(o)
	if err != nil {
		t.Fatal(err)
	}
	if m.Host.Sources["update"] != Assumed || m.Host.Update != 2*m.Host.Copy {
		t.Errorf("updates at %v, copies at %v: %v", m.Host.Update, m.Host.Copy, m.Host.Sources)
	}
	if m.Host.Sources["f32"] != Assumed || m.Devices[0].Sources["f32"] != Assumed || m.Disk.Sources["read"] != Assumed {
		t.Errorf("host %v, device %v, disk %v", m.Host.Sources, m.Devices[0].Sources, m.Disk.Sources)
	}
	if text := m.Describe(); !strings.Contains(text, "matrix products was not measured") || !strings.Contains(text, "disk were not measured") {
		t.Errorf("Describe does not say what was not measured:\n%s", text)
	}
	o.DiskPath = filepath.Join(o.DiskPath, "absent")
	if _, err := Probe(o); err == nil || !strings.Contains(err.Error(), "absent") {
		t.Errorf("a folder that is not there: %v", err)
	}
	o = quick()
	o.System = fake("full")
	if _, err := Probe(o); err == nil {
		t.Error("a computer without usable memory was accepted")
	}
}

func TestProbeKeepsRates(t *testing.T) {
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	calls := 0
	o := quick()
	o.CacheDir, o.MaxAge = filepath.Join(t.TempDir(), "cache"), time.Hour
	o.Now = func() time.Time { return now }
	o.Arithmetic = func(dtype.Type) (units.Flops, error) { calls++; return units.Flops(calls) * 1e9, nil }
	o.Tables = func(dtype.Type) (ByVariant, error) {
		return ByVariant{{Kind: op.Add}: {Axes: [][]int64{{1, 10}}, Rates: []float64{1e9, 2e9}}}, nil
	}
	probe := func(what string, wantMeasured bool) Machine {
		t.Helper()
		before := calls
		m, err := Probe(o)
		if err != nil {
			t.Fatal(err)
		}
		if measured := calls > before; measured != wantMeasured {
			t.Errorf("%s: measured %v, want %v", what, measured, wantMeasured)
		}
		return m
	}
	first := probe("the first time", true)
	if second := probe("the second time", false); !reflect.DeepEqual(first, second) {
		t.Errorf("kept rates differ:\n%+v\n%+v", first, second)
	}
	now = now.Add(59 * time.Minute)
	if m := probe("within its age", false); !m.Calibrated.Equal(first.Calibrated) {
		t.Errorf("calibrated %v, was %v", m.Calibrated, first.Calibrated)
	}
	now = now.Add(2 * time.Minute)
	probe("past its age", true)
	o.Version = "2"
	probe("another version", true)
	o.Refresh = true
	probe("asked to refresh", true)
	o.Refresh = false
	files, err := filepath.Glob(filepath.Join(o.CacheDir, "*"))
	if err != nil || len(files) != 2 {
		t.Fatalf("cache holds %v, %v; want a file per version", files, err)
	}
	for _, f := range files {
		if err := os.WriteFile(f, []byte("{half"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if m := probe("a damaged cache", true); !slices.ContainsFunc(m.Notes, func(n string) bool { return strings.Contains(n, "measured again") }) {
		t.Errorf("the damaged cache is not in the notes: %q", m.Notes)
	}
	o.CacheDir = "/dev/null/x"
	if m := probe("a cache that cannot be written", true); !slices.ContainsFunc(m.Notes, func(n string) bool { return strings.Contains(n, "could not be kept") }) {
		t.Errorf("notes %q", m.Notes)
	}
}

// The host's rates are the same whether a disk is measured too: what was measured again with
// one, as spillway devices does, counts without.
func TestDisksAreKeptApart(t *testing.T) {
	calls := 0
	o := quick()
	o.CacheDir = t.TempDir()
	o.Arithmetic = func(dtype.Type) (units.Flops, error) { calls++; return units.Flops(calls) * 1e9, nil }
	probe := func(disk, refresh bool) Machine {
		t.Helper()
		with := o
		if with.Refresh = refresh; disk {
			with.DiskPath, with.MeasureDisk, with.DiskBytes = t.TempDir(), true, units.MiB
		}
		m, err := Probe(with)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	first := probe(false, false)
	if with := probe(true, false); with.Host.Compute != first.Host.Compute || with.Disk.Sources["read"] != Measured {
		t.Errorf("with a disk the host has %+v, without %+v; disk %+v", with.Host.Compute, first.Host.Compute, with.Disk)
	}
	again := probe(true, true)
	if last := probe(false, false); last.Host.Compute != again.Host.Compute || last.Host.Compute == first.Host.Compute {
		t.Errorf("measured again with a disk %+v, then without %+v, at first %+v", again.Host.Compute, last.Host.Compute, first.Host.Compute)
	}
}

// A disk that had no room to be measured is measured when it has.
func TestFullDisksAreMeasuredLater(t *testing.T) {
	o := quick()
	o.CacheDir, o.DiskPath, o.MeasureDisk, o.DiskBytes = t.TempDir(), t.TempDir(), true, 1<<60
	for _, want := range []Source{Assumed, Measured} {
		m, err := Probe(o)
		if err != nil {
			t.Fatal(err)
		}
		if m.Disk.Sources["read"] != want {
			t.Errorf("a file of %v: the disk's rate is %v, want %v", o.DiskBytes, m.Disk.Sources["read"], want)
		}
		o.DiskBytes = units.MiB
	}
}

// What calls of many sizes reach is the processor's; what could not be measured is said, and
// large work's rates remain.
func TestProbeMeasuresCalls(t *testing.T) {
	o := quick()
	o.Tables = func(d dtype.Type) (ByVariant, error) {
		if d != dtype.F32 {
			return nil, errors.New("no memory for it")
		}
		return ByVariant{{Kind: op.Add}: {Axes: [][]int64{{1, 10}}, Rates: []float64{1e9, 2e9}}}, nil
	}
	m, err := Probe(o)
	if err != nil {
		t.Fatal(err)
	}
	if tables := m.Devices[0].Tables; len(tables) != 1 || len(tables["f32"]) != 1 {
		t.Errorf("the processor has the tables %v", tables)
	}
	if !slices.ContainsFunc(m.Notes, func(n string) bool { return strings.Contains(n, "bf16") && strings.Contains(n, "no memory for it") }) {
		t.Errorf("notes %q", m.Notes)
	}
}

// The real computer must at least give a machine that checks out.
func TestProbeThisComputer(t *testing.T) {
	m, err := Probe(Options{CopyBytes: 8 * units.MiB})
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

// BenchmarkCopy compares chunks with one plain copy, as the constant claims.
func BenchmarkCopy(b *testing.B) {
	from, to := make([]byte, 128<<20), make([]byte, 128<<20)
	for i := range from {
		from[i] = byte(i) // an untouched source is one page of zeros in the cache
	}
	copy(to, from) // the first touch of a page is no part of a copy
	run := func(name string, do func()) {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(from)))
			for b.Loop() {
				do()
			}
		})
	}
	run("chunks", func() { copyChunks(to, from) })
	run("plain", func() { copy(to, from) })
}
