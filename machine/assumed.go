package machine

import (
	"cmp"
	"slices"
	"time"

	"spillway/units"
)

// Typical values for what a description does not say. Describe marks each as assumed.
const (
	// contextOverhead is the GPU memory that a CUDA context, its loaded libraries
	// and their workspaces take before the first arena: 0.5 to 0.6 GiB seen.
	contextOverhead = 614 * units.MiB
	// hostShare is the share of a described RAM that may be used next to GPUs; the
	// rest is for the system and this process.
	hostShare = 0.92
	// hostPerDevice is the RAM per byte of device memory of a common server.
	hostPerDevice = 2
	minHost       = 16 * units.GiB

	gpuCompute        units.Flops   = 120e12 // bf16, a 24 GiB GPU of today
	gpuBandwidth      units.Rate    = 900e9
	gpuLaunch                       = 5 * time.Microsecond
	gpuKernel                       = 1500 * time.Nanosecond // small ones take 1 to 3 on an H200, the smallest 1.1
	linkLatency                     = 10 * time.Microsecond
	sustainedShare                  = 0.88 // of matmuls on tensor cores without pauses: 717 of 813 TFLOP/s on an H200
	linkBidirectional Bidirectional = 0.92 // PCIe 5 on an H200 carries 101.6 GB/s both ways, 55.5 and 55.4 alone

	hostCores              = 16
	copyPerCore units.Rate = 5e9
	// busCores saturate the memory bus of a desktop, which has two channels, and serverBusCores that of a server: next to
	// an H200 16 cores read 88 to 102 GB/s in matmuls of one row and carry 132 to 145 in updates, and here 120 in both.
	busCores, serverBusCores             = 5, 12
	corePeak                 units.Flops = 40e9 // f32 per core, AVX2 at 2.5 GHz, half of its peak
	cpuLaunch                            = time.Microsecond
	// hostBandwidthShare is Link.HostBandwidth per GPU as a multiple of Host.Update:
	// 165 GB/s and 138 on 16 cores next to an H200.
	hostBandwidthShare = 1.2

	diskRead units.Rate = 2e9 // a plain NVMe drive; it writes half as fast
)

// What matmuls of few rows with packed weights reach on a GPU, next to the time of a short kernel.
// With these, steps of the Llama-3-8B shape take what they take on an H200: 2.5 ms in nf4, 2.7 in
// fp8, 2.0 in Q4_K_M, 3.4 for four rows of it.
const (
	PackedRead    = 0.9  // of the memory's rate, in reading codes
	PackedLookup  = 0.57 // the same where codes are looked up in a table, as those of nf4
	PackedCompute = 0.3  // of the rate of f32: several rows are bound by decoding codes for each
)

// Complete fills every figure that has no source yet: with what is published of a GPU that
// has a known name, with what follows from other figures, else with a typical value.
func (m *Machine) Complete() {
	gpus, cpus, server := 0, 0, false
	var onDevices units.Bytes
	for i := range m.Devices {
		d := &m.Devices[i]
		if d.Kind == GPU {
			gpus++
			server = d.assumeGPU() || server
		} else {
			cpus++
		}
		onDevices += d.Memory
	}
	m.Host.assume(onDevices, gpus > 0, server)
	for i := range m.Devices {
		d := &m.Devices[i]
		if d.Kind == CPU {
			d.assumeCPU(m.Host, cpus)
			continue
		}
		d.Fill(Device{Link: Link{HostBandwidth: hostBandwidthShare * m.Host.Update * units.Rate(gpus)}}, Assumed)
	}
	if m.HasDisk() {
		m.Disk.Fill(Disk{Read: diskRead}, Assumed)
		m.Disk.Fill(Disk{Write: m.Disk.Read / 2}, Assumed)
	}
}

// assumeGPU takes the published figures of a GPU with a known name first, then typical ones. It says whether servers have
// such a GPU.
func (d *Device) assumeGPU() (server bool) {
	model, known := findModel(d.Model)
	if known {
		d.Fill(model.device(), Published)
		d.Capability = model.capability
	}
	d.Fill(Device{Context: contextOverhead}, Assumed)
	typical := Device{
		Usable:    d.Memory - d.Context,
		Bandwidth: gpuBandwidth,
		Launch:    gpuLaunch,
		Link:      Link{In: pcie4, Out: pcie4, Bidirectional: linkBidirectional, Latency: linkLatency},
	}
	// The ratios between types are those of GPUs since 2020, scaled to the bf16 rate if that is
	// given. They are not for GPUs of the list: a rate that is not published there does not exist.
	if bf16 := gpuCompute; !known {
		if _, given := d.Sources["bf16"]; given {
			bf16 = d.Compute.BF16
		}
		typical.Compute = Compute{BF16: bf16, F16: bf16, TF32: bf16 / 2, F32: bf16 / 4}
	}
	d.Fill(typical, Assumed)
	return known && model.server()
}

// ForPlans is the machine with two figures of GPUs that descriptions do not give and forecasts need:
// a typical time of short kernels, since an iteration has hundreds of them, which would otherwise be
// forecast as long as a launch; and the share of a rate that matmuls reach when they go on without
// pauses. A GPU without a known name gets them for steps that generate alone: little else is known of
// it, and a launch for each kernel will do.
func (m Machine) ForPlans(generate bool) Machine {
	m.Devices = slices.Clone(m.Devices)
	for i := range m.Devices {
		d := &m.Devices[i]
		if d.Kind != GPU || !d.Known() && !generate {
			continue
		}
		d.Sources = d.Sources.clone()
		if d.Kernel == 0 {
			d.Fill(Device{Kernel: min(gpuKernel, cmp.Or(d.Launch, gpuKernel))}, Assumed)
		}
		if c := d.Compute; d.Known() && d.Sources["bf16"] != Measured && d.Sources["f32"] != Measured {
			share := func(c units.Flops) units.Flops { return units.Flops(sustainedShare * float64(c)) }
			d.Fill(Device{Sustained: Compute{BF16: share(c.BF16), F16: share(c.F16), TF32: share(c.TF32), F32: c.F32}}, Assumed)
		}
	}
	return m
}

// assumeCPU gives a CPU device its share of the host's rates. Its memory is exact:
// nothing is set aside.
func (d *Device) assumeCPU(h Host, cpus int) {
	d.Fill(Device{Usable: d.Memory}, Derived)
	part := units.Flops(cpus)
	d.Fill(Device{Compute: Compute{F32: h.Compute.F32 / part}}, derivedFrom(h.Sources["f32"]))
	d.Fill(Device{Compute: Compute{BF16: h.Compute.BF16 / part}}, derivedFrom(h.Sources["bf16"]))
	d.Fill(Device{Compute: Compute{F16: h.Compute.F16 / part}}, derivedFrom(h.Sources["f16"]))
	link := h.Copy / units.Rate(cpus)
	d.Fill(Device{Bandwidth: 2 * link, Link: Link{In: link, Out: link}}, derivedFrom(h.Sources["copy"]))
	d.Fill(Device{Launch: cpuLaunch, Link: Link{Bidirectional: FullDuplex}}, Assumed)
}

// derivedFrom is the source of a figure computed from one with source s.
func derivedFrom(s Source) Source {
	if s == Given {
		return Derived
	}
	return s
}

// assume fills the host, a desktop or a server. All its memory is usable where no GPU is described, as in tests.
func (h *Host) assume(onDevices units.Bytes, withGPUs, server bool) {
	h.Fill(Host{Memory: max(hostPerDevice*onDevices, minHost), Cores: hostCores}, Assumed)
	allowed := h.Memory
	if h.Limit > 0 {
		allowed = min(allowed, h.Limit)
	}
	if withGPUs {
		h.Fill(Host{Usable: units.Bytes(float64(allowed) * hostShare)}, Assumed)
	}
	h.Fill(Host{Usable: allowed}, Derived)
	bus := busCores
	if server {
		bus = serverBusCores
	}
	h.Fill(Host{
		CopyOne: copyPerCore,
		Copy:    copyPerCore * units.Rate(min(h.Cores, bus)),
		Compute: Compute{F32: corePeak * units.Flops(h.Cores)},
	}, Assumed)
	h.Fill(Host{Update: 2 * h.Copy}, Assumed)
}
