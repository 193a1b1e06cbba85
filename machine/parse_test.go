package machine

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"spillway/dtype"
	"spillway/quant"
	"spillway/units"
)

func parse(t *testing.T, text string) Machine {
	t.Helper()
	m, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestParseTakesWhatIsGiven(t *testing.T) {
	m := parse(t, "gpu:24GiB@55GB/s/165TFLOPS/bandwidth=1TB/s/launch=4us/usable=23GiB, host:64GiB@30GB/s/cores=8 ,disk:2TiB@3GB/s/write=1GB/s")
	d := m.Devices[0]
	want := Device{
		Name: "gpu0", Kind: GPU, Memory: 24 * units.GiB, Usable: 23 * units.GiB, Context: contextOverhead,
		Compute:   Compute{BF16: 165e12, F16: 165e12, TF32: 82.5e12, F32: 41.25e12},
		Bandwidth: 1e12, Link: Link{In: 55e9, Out: 55e9, Bidirectional: linkBidirectional, Latency: linkLatency, HostBandwidth: 72e9}, Launch: 4 * time.Microsecond,
		Sources: Sources{"memory": Given, "usable": Given, "in": Given, "out": Given, "bf16": Given, "bandwidth": Given, "launch": Given,
			"f16": Assumed, "tf32": Assumed, "f32": Assumed, "bidirectional": Assumed, "latency": Assumed, "host-bandwidth": Assumed, "context": Assumed},
	}
	if !reflect.DeepEqual(d, want) {
		t.Errorf("device\n got %+v\nwant %+v", d, want)
	}
	h := m.Host
	if h.Memory != 64*units.GiB || h.Copy != 30e9 || h.Cores != 8 || h.Usable != 64*units.GiB*92/100 {
		t.Errorf("host %+v", h)
	}
	if m.Disk.Free != 2*units.TiB || m.Disk.Read != 3e9 || m.Disk.Write != 1e9 {
		t.Errorf("disk %+v", m.Disk)
	}
}

func TestParseCountsAndNamesDevices(t *testing.T) {
	m := parse(t, "2xgpu:24GiB,cpu:16GiB,rtx4090,peer@50GB/s")
	var names []string
	for _, d := range m.Devices {
		names = append(names, d.Name)
	}
	if got := strings.Join(names, " "); got != "gpu0 gpu1 cpu0 gpu2" {
		t.Errorf("devices %s", got)
	}
	if len(m.Peers) != 3 {
		t.Errorf("three GPUs make three pairs, got %v", m.Peers)
	}
	if p, ok := m.Peer("gpu2", "gpu0"); !ok || p.Rate != 50e9 {
		t.Errorf("peer gpu2-gpu0: %v %v", p, ok)
	}
	if _, ok := m.Peer("gpu0", "cpu0"); ok {
		t.Error("peer@ links GPUs only")
	}
	m.Devices[0].Sources["memory"] = Measured
	if m.Devices[1].Sources["memory"] != Given {
		t.Error("counted devices share their sources")
	}
}

func TestDefaultsAreMarked(t *testing.T) {
	m := parse(t, "h200")
	d := m.Devices[0]
	if d.Sources["bf16"] != Published || d.Sources["in"] != Published || d.Sources["launch"] != Assumed {
		t.Errorf("sources %v", d.Sources)
	}
	if d.Usable != d.Memory-contextOverhead || d.Sources["usable"] != Assumed {
		t.Errorf("usable %v of %v (%s)", d.Usable, d.Memory, d.Sources["usable"])
	}
	if m.Host.Memory != 2*d.Memory || m.Host.Sources["memory"] != Assumed || m.HasDisk() {
		t.Errorf("host %v (%s), disk %v", m.Host.Memory, m.Host.Sources["memory"], m.HasDisk())
	}
	cpu := parse(t, "4xcpu:5MiB,host:50MiB")
	if d := cpu.Devices[3]; d.Usable != 5*units.MiB || d.Compute.F32*4 != cpu.Host.Compute.F32 || d.Link.In*4 != cpu.Host.Copy {
		t.Errorf("cpu device %+v of host %+v", d, cpu.Host)
	}
	if cpu.Host.Usable != 50*units.MiB {
		t.Errorf("host next to cpu devices is exact, got %v", cpu.Host.Usable)
	}
	if limited := parse(t, "cpu:1GiB,host:64GiB@limit=8GiB"); limited.Host.Usable != 8*units.GiB {
		t.Errorf("usable under a limit of 8 GiB: %v", limited.Host.Usable)
	}
}

// The published peaks times the stated shares must give what was measured on the
// GPU we measured: 790 TFLOP/s, 4.3 TB/s, 55 GB/s.
func TestH200AgreesWithMeasurement(t *testing.T) {
	m := parse(t, "h200")
	d := m.Devices[0]
	near := func(what string, got, want float64) {
		if got < 0.97*want || got > 1.03*want {
			t.Errorf("%s: %.4g, measured %.4g", what, got, want)
		}
	}
	near("bf16", float64(d.Compute.BF16), 790e12)
	near("bandwidth", float64(d.Bandwidth), 4.3e12)
	near("link", float64(d.Link.In), 55.4e9)
	if got := m.Host.Update; got < 102e9 || got > 138e9 { // by reads and by updates
		t.Errorf("the host's memory carries %v, 102 to 138 GB/s were measured", got)
	}
	if desktop := parse(t, "rtx4090").Host; desktop.Update != 50e9 {
		t.Errorf("a desktop's memory carries %v", desktop.Update)
	}
}

func TestGPUsAreSound(t *testing.T) {
	names := GPUNames()
	for i, name := range names {
		m := parse(t, name)
		d := m.Devices[0]
		if i > 0 && names[i-1] >= name {
			t.Errorf("%s is out of order", name)
		}
		// No GPU's tensor cores are slower than its ordinary ones, nor its memory than its link.
		if d.Compute.Rate(dtype.F16) < d.Compute.F32 || d.Bandwidth < 5*d.Link.In {
			t.Errorf("%s: %+v", name, d)
		}
		if m.String() != name {
			t.Errorf("%s writes itself %q", name, m)
		}
	}
	h := parse(t, "h100").Devices[0].Compute
	if h.Rate(quant.NF4) != h.BF16 || h.Rate(dtype.F8E4M3) != h.F8 || h.Rate(dtype.F64) != h.F32 {
		t.Errorf("rates by type: %+v", h)
	}
}

// GPUs that are too old for the kernels are named as that, not as unknown ones, nor planned for.
func TestOlderGPUsAreRefused(t *testing.T) {
	for name, generation := range map[string]string{
		"t4": "Turing", "Tesla-T4": "Turing", "2xt4": "Turing", "rtx2080ti": "Turing", "2060": "Turing", "gtx1660": "Turing", "rtx8000": "Turing", "quadro-rtx6000": "Turing",
		"v100": "Volta", "v100-32": "Volta", "gtx1080": "Pascal", "gtx-1080-ti": "Pascal", "p40": "Pascal", "p100": "Pascal", "gtx1050ti": "Pascal", "k80": "Kepler", "m40": "Maxwell", "gtx980": "Maxwell",
	} {
		_, err := Parse(name + ",host:16GiB")
		if err == nil || !strings.Contains(err.Error(), generation) || !strings.Contains(err.Error(), "need 8.0") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range GPUNames() {
		if generation, _ := older(name); generation != "" {
			t.Errorf("%s is said to be of %s", name, generation)
		}
		if d := parse(t, name).Devices[0]; d.Capability < LeastCapability || d.Compute.BF16 == 0 {
			t.Errorf("%s has capability %d and bf16 at %v, and is listed", name, d.Capability, d.Compute.BF16)
		}
	}
}

// GPUs by name have the links of the form they are usually in: SXM modules NVLink within a board of eight, at no more
// than its makers' figure each way; others none. What is said of links counts.
func TestNamedGPUsHaveTheirLinks(t *testing.T) {
	for text, c := range map[string]struct {
		pairs int
		most  units.Rate // published, each way
	}{
		"2xa100": {1, 300e9}, "4xa100-80gb": {6, 300e9}, "8xh100": {28, 450e9}, "8xh200:40GiB": {28, 450e9}, "2xb200": {1, 900e9},
		"16xh100": {2 * 28, 450e9}, "10xh100": {28 + 1, 450e9}, "h100,h200,h100": {1, 450e9},
		"h100": {}, "2xh100-pcie": {}, "2xa100-pcie": {}, "2xrtx4090": {}, "2xl40s": {}, "2xgpu:80GiB": {},
		"2xh100,peer:none": {}, "3xh100,peer:gpu0-gpu1@50GB/s": {1, 50e9},
	} {
		m := parse(t, text)
		if len(m.Peers) != c.pairs {
			t.Errorf("%s has %d linked pairs, want %d", text, len(m.Peers), c.pairs)
		}
		for _, p := range m.Peers {
			if p.Rate > c.most || p.Rate < c.most*3/4 {
				t.Errorf("%s: %s-%s at %v, %v are published", text, p.A, p.B, p.Rate, c.most)
			}
		}
	}
	if _, linked := parse(t, "16xh100").Peer("gpu7", "gpu8"); linked {
		t.Error("two boards are linked")
	}
	m, err := parse(t, "16xh100").Only([]string{"gpu0", "gpu8"})
	if err != nil || m.String() != "2xh100,peer:none" {
		t.Errorf("GPUs of two boards: %v, %v", m, err)
	}
}

func TestStringRoundTrips(t *testing.T) {
	for in, want := range map[string]string{
		"gpu:24GiB@55GB/s,host:64GiB,disk:2TiB@3GB/s": "gpu:24GiB@55GB/s,host:64GiB,disk:2TiB@3GB/s",
		" GPU:24 GiB , gpu:24576MiB":                  "2xgpu:24GiB",
		"2xgpu:24GiB":                                 "2xgpu:24GiB",
		"host:64GiB,rtx4090":                          "rtx4090,host:64GiB",
		"h200:24GiB":                                  "h200:24GiB",
		"gpu:24GiB@in=25GB/s/out=20GB/s":              "gpu:24GiB@in=25GB/s/out=20GB/s",
		"gpu:24GiB@in=25GB/s/out=25GB/s":              "gpu:24GiB@25GB/s",
		"gpu:24GiB@25GB/s/165TFLOP/s/half-duplex":     "gpu:24GiB@25GB/s/half-duplex/165TFLOPS",
		"cpu:16GiB@shared/90GFLOPS,host:16GiB":        "cpu:16GiB@90GFLOPS/shared,host:16GiB",
		"cpu:5000001":                                 "cpu:5000001B",
		"2xh100,peer@450GB/s":                         "2xh100,peer@450GB/s",
		"3xh100,peer:gpu0-gpu2@450GB/s":               "3xh100,peer:gpu0-gpu2@450GB/s",
		"2xh100":                                      "2xh100",
		"2xh100,peer:none":                            "2xh100,peer:none",
		"2xh100,peer@360GB/s":                         "2xh100,peer@360GB/s",
		"2xh100-pcie,peer:none":                       "2xh100-pcie",
		"12xa100-80gb":                                "12xa100-80",
		"a100-sxm4-80gb,a100-pcie":                    "a100-80,a100-pcie-40",
		"a100-80-pcie":                                "a100-pcie-80",
		"gpu:8GiB@0.3GB/s":                            "gpu:8GiB@300MB/s",
		"gpu:8GiB@latency=0s":                         "gpu:8GiB@latency=0s",
	} {
		m := parse(t, in)
		if m.String() != want || m.Name != want {
			t.Errorf("Parse(%q) writes itself %q, want %q", in, m, want)
		}
		if again := parse(t, m.String()); !reflect.DeepEqual(again, m) {
			t.Errorf("%q changed:\n%+v\n%+v", in, m, again)
		}
	}
}

func TestParseErrorsTeach(t *testing.T) {
	for in, says := range map[string]string{
		"":                                  "it is empty",
		"host:64GiB":                        "add one such as gpu:24GiB",
		"gpu":                               "write gpu:24GiB",
		"gpu:24":                            "write the unit",
		"gpu:512MiB":                        "use cpu:512MiB",
		"gpu:24GiB@fast":                    `unknown figure "fast"`,
		"gpu:24GiB@25GB/s/30GB/s":           "in is there twice",
		"gpu:24GiB@size=3GiB":               `unknown figure "size"`,
		"gpu:24GiB@usable=30GiB":            "usable= must not be above",
		"gpu:24GiB@latency=soon":            "write it like 5us",
		"gpu:24GiB@0GB/s":                   "above zero",
		"gpu:24GiB@1e300GB/s":               "outside 1 B/s",
		"rtx9999":                           "rtx4090",
		"0xgpu:24GiB":                       "between 1 and 128",
		"999999999999999999999xgpu:24GiB":   "between 1 and 128",
		"100xgpu:24GiB,100xgpu:24GiB":       "more than 128",
		"gpu:9000TiB":                       "larger than any one memory",
		"2xhost:64GiB,gpu:24GiB":            "only devices can be counted",
		"gpu:24GiB,host:1GiB,host:2GiB":     "it is there twice",
		"gpu:24GiB,disk@3GB/s":              "write disk:2TiB",
		"gpu:24GiB,peer:gpu0@1GB/s":         "two devices",
		"2xgpu:24GiB,peer:none@1GB/s":       "two devices",
		"gpu:24GiB,peer:gpu0-gpu1@1GB/s":    `no device "gpu1"`,
		"2xgpu:24GiB,peer@1GB/s,peer@1GB/s": "each pair only once",
		"gpu:24GiB,host:64GiB@cores=0":      "integer",
	} {
		m, err := Parse(in)
		if err == nil {
			t.Errorf("Parse(%q) gave %v, want an error with %q", in, m, says)
		} else if !strings.Contains(err.Error(), says) {
			t.Errorf("Parse(%q): %v\nwant it to say %q", in, err, says)
		}
	}
}

func TestJSONRoundTrips(t *testing.T) {
	m := parse(t, "2xh100,host:1TiB,disk:2TiB@3GB/s,peer@450GB/s")
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var back Machine
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(back, m) {
		t.Errorf("JSON changed the machine:\n%s", text)
	}
	if noDisk, _ := json.Marshal(parse(t, "h100")); strings.Contains(string(noDisk), `"disk"`) {
		t.Errorf("a machine without disk says %s", noDisk)
	}
}

func TestCheckRefusesDamage(t *testing.T) {
	for name, damage := range map[string]func(*Machine){
		"no devices":   func(m *Machine) { m.Devices = nil },
		"same name":    func(m *Machine) { m.Devices[1].Name = "gpu0" },
		"kind":         func(m *Machine) { m.Devices[0].Kind = "tpu" },
		"over-usable":  func(m *Machine) { m.Devices[0].Usable = m.Devices[0].Memory + 1 },
		"no rate":      func(m *Machine) { m.Devices[0].Link.Out = 0 },
		"model":        func(m *Machine) { m.Devices[0].Model = "a,b" },
		"time":         func(m *Machine) { m.Devices[0].Launch = -1 },
		"host":         func(m *Machine) { m.Host.Usable = 0 },
		"cores":        func(m *Machine) { m.Host.Cores = 0 },
		"copy":         func(m *Machine) { m.Host.Copy = 0 },
		"disk":         func(m *Machine) { m.Disk.Write = 0 },
		"peer unknown": func(m *Machine) { m.Peers[0].B = "gpu7" },
	} {
		m := parse(t, "2xh100,disk:1TiB,peer@450GB/s")
		damage(&m)
		if m.Check() == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestDescribeSaysWhereFiguresComeFrom(t *testing.T) {
	m := parse(t, "rtx4090@25GB/s,host:64GiB")
	const want = `machine  rtx4090@25GB/s,host:64GiB
gpu0     gpu rtx4090
  memory             24.0 GiB  published
  usable             23.4 GiB  assumed
  context             614 MiB  assumed
  in                25.0 GB/s  given
  out               25.0 GB/s  given
  bidirectional         92.0%  assumed
  latency                10µs  assumed
  host-bandwidth    60.0 GB/s  assumed
  bf16            132 TFLOP/s  published
  f16             132 TFLOP/s  published
  tf32           66.1 TFLOP/s  published
  f32            66.1 TFLOP/s  published
  f8              264 TFLOP/s  published
  bandwidth          907 GB/s  published
  launch                  5µs  assumed
host
  memory             64.0 GiB  given
  usable             58.9 GiB  assumed
  cores                    16  assumed
  copy              25.0 GB/s  assumed
  copy-one          5.00 GB/s  assumed
  update            50.0 GB/s  assumed
  f32             640 GFLOP/s  assumed
disk     none
`
	if got := m.Describe(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"gpu:24GiB@55GB/s,host:64GiB,disk:2TiB@3GB/s", "2xgpu:24GiB", "rtx4090,host:64GiB", "cpu:16GiB@shared",
		"gpu:24GiB@25GB/s/165TFLOPS/half-duplex/usable=20GiB", "3xh100,peer:gpu0-gpu2@1GB/s", "128xt4,peer@1GB/s", "gpu:1e3GB@1e17B/s/0.7e3FLOP/s",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		m, err := Parse(text)
		if err != nil {
			return
		}
		again, err := Parse(m.String())
		if err != nil {
			t.Fatalf("%q was read, its own text %q was not: %v", text, m, err)
		}
		if !reflect.DeepEqual(again, m) {
			t.Fatalf("%q through %q changed:\n%+v\n%+v", text, m, m, again)
		}
	})
}
