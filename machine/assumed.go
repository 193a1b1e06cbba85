package machine

import (
	"time"

	"spillway/units"
)

// What is taken for granted where a description says nothing. Describe marks each
// of these as assumed.
const (
	// contextOverhead is the card memory that a CUDA context, its loaded libraries
	// and their workspaces take before the first arena: 0.5 to 0.6 GiB seen.
	contextOverhead = 614 * units.MiB
	// hostShare is the part of a described RAM that may be used beside GPUs; the
	// rest is for the system and this process.
	hostShare = 0.92
	// hostPerDevice is the RAM per byte of device memory of a usual server.
	hostPerDevice = 2
	minHost       = 16 * units.GiB

	gpuCompute        units.Flops   = 120e12 // bf16, a 24 GiB card of today
	gpuBandwidth      units.Rate    = 900e9
	gpuLaunch                       = 5 * time.Microsecond
	linkLatency                     = 10 * time.Microsecond
	linkBidirectional Bidirectional = 0.92 // PCIe 5 on an H200 carries 101.6 GB/s both ways, 55.5 and 55.4 alone

	hostCores               = 16
	copyPerCore units.Rate  = 5e9
	busCores                = 5    // cores that fill the memory bus
	corePeak    units.Flops = 40e9 // f32 per core, AVX2 at 2.5 GHz, half of its peak
	cpuLaunch               = time.Microsecond
	// trafficShare is what a host's memory carries of updates and copies together, for each
	// card, where updates alone are 1: 165 GB/s and 138 on 16 cores beside an H200.
	hostBandwidthShare = 1.2

	diskRead units.Rate = 2e9 // a plain NVMe drive; it writes half as fast
)

// assume fills every figure of the machine that has no source yet.
func (m *Machine) assume() {
	gpus, cpus := 0, 0
	var onDevices units.Bytes
	for i := range m.Devices {
		d := &m.Devices[i]
		if d.Kind == GPU {
			gpus++
			d.assumeGPU()
		} else {
			cpus++
		}
		onDevices += d.Memory
	}
	m.Host.assume(onDevices, gpus > 0)
	for i := range m.Devices {
		d := &m.Devices[i]
		if d.Kind == CPU {
			d.assumeCPU(m.Host, cpus)
			continue
		}
		traffic := hostBandwidthShare * m.Host.Update * units.Rate(gpus)
		figures{d.figures(), &d.Sources}.fill((&Device{Link: Link{HostBandwidth: traffic}}).figures(), Assumed)
	}
	if m.HasDisk() {
		m.Disk.assume()
	}
}

// assumeGPU takes a named card's published figures first, then typical ones.
func (d *Device) assumeGPU() {
	f := figures{d.figures(), &d.Sources}
	c, known := findModel(d.Model)
	if known {
		published := c.device()
		f.fill(published.figures(), Published)
	}
	typical := Device{
		Usable:    d.Memory - contextOverhead,
		Bandwidth: gpuBandwidth,
		Launch:    gpuLaunch,
		Link:      Link{In: pcie4, Out: pcie4, Bidirectional: linkBidirectional, Latency: linkLatency},
	}
	if !known {
		typical.Compute = d.typicalCompute()
	}
	f.fill(typical.figures(), Assumed)
}

// typicalCompute has the ratios between types of cards since 2020, from the bf16 rate if
// that is given. A card of the list is not asked: what its maker does not name it lacks.
func (d *Device) typicalCompute() Compute {
	bf16 := gpuCompute
	if _, given := d.Sources["bf16"]; given {
		bf16 = d.Compute.BF16
	}
	return Compute{BF16: bf16, F16: bf16, TF32: bf16 / 2, F32: bf16 / 4}
}

// assumeCPU gives a CPU device its part of the host's rates. Its memory is exact:
// nothing is set aside.
func (d *Device) assumeCPU(h Host, cpus int) {
	f := figures{d.figures(), &d.Sources}
	f.fill((&Device{Usable: d.Memory}).figures(), Derived)
	part := units.Flops(cpus)
	f.fill((&Device{Compute: Compute{F32: h.Compute.F32 / part}}).figures(), follow(h.Sources["f32"]))
	f.fill((&Device{Compute: Compute{BF16: h.Compute.BF16 / part}}).figures(), follow(h.Sources["bf16"]))
	f.fill((&Device{Compute: Compute{F16: h.Compute.F16 / part}}).figures(), follow(h.Sources["f16"]))
	link := h.Copy / units.Rate(cpus)
	f.fill((&Device{Bandwidth: 2 * link, Link: Link{In: link, Out: link}}).figures(), follow(h.Sources["copy"]))
	f.fill((&Device{Launch: cpuLaunch, Link: Link{Bidirectional: FullDuplex}}).figures(), Assumed)
}

// follow is the source of a figure computed from one with source s.
func follow(s Source) Source {
	if s == Given {
		return Derived
	}
	return s
}

// assume fills the host; it is exact where no GPU is described, as in tests.
func (h *Host) assume(onDevices units.Bytes, besideGPU bool) {
	f := figures{h.figures(), &h.Sources}
	f.fill((&Host{Memory: max(hostPerDevice*onDevices, minHost), Cores: hostCores}).figures(), Assumed)
	allowed := h.Memory
	if h.Limit > 0 {
		allowed = min(allowed, h.Limit)
	}
	if besideGPU {
		f.fill((&Host{Usable: units.Bytes(float64(allowed) * hostShare)}).figures(), Assumed)
	}
	f.fill((&Host{Usable: allowed}).figures(), Derived)
	rest := Host{
		CopyOne: copyPerCore,
		Copy:    copyPerCore * units.Rate(min(h.Cores, busCores)),
		Compute: Compute{F32: corePeak * units.Flops(h.Cores)},
	}
	f.fill(rest.figures(), Assumed)
	f.fill((&Host{Update: 2 * h.Copy}).figures(), Assumed)
}

func (d *Disk) assume() {
	f := figures{d.figures(), &d.Sources}
	f.fill((&Disk{Read: diskRead}).figures(), Assumed)
	f.fill((&Disk{Write: d.Read / 2}).figures(), Assumed)
}
