package planner

import (
	"fmt"

	"spillway/device/sim"
	"spillway/dtype"
	"spillway/machine"
	"spillway/units"
)

// Alignment of buffers: what the widest loads of every backend like.
const Alignment = 256

// vectorShare is the arithmetic rate of elementwise ops against matrix products
// on hardware with matrix units.
const vectorShare = 0.1

// SiteOf is a device of a machine as a place to plan for, computing in t. Kernels
// are the simulator's, until a real device is put in their place.
func SiteOf(m machine.Machine, name string, t dtype.Type) (Site, error) {
	d, ok := m.Device(name)
	if !ok {
		return Site{}, fmt.Errorf("machine %s has no device %q", m.Name, name)
	}
	r := RatesOf(d, t)
	for _, p := range m.Peers {
		if p.A == name || p.B == name {
			r.Peer = p.Rate
		}
	}
	site := Site{
		Device: d.Name, Budget: int64(d.Usable), HostBudget: int64(m.Host.Usable), Alignment: Alignment,
		Kernels: sim.NewVirtual(d.Name, 0, Alignment, r), Rates: r,
		HostPinned: d.Kind == machine.GPU, SharedMemory: d.Shared, Devices: alike(m, d),
		Disk: Disk{Budget: int64(m.Disk.Free), Read: m.Disk.Read, Write: m.Disk.Write},
	}
	if d.Kind == machine.GPU {
		site.CPU = cpuRates(m.Host)
		site.Rates.HostUnderLoad = d.Link.HostBandwidth
	}
	return site, nil
}

// hostRates are those of the host's processor. Updates are bound by its memory bus.
func cpuRates(h machine.Host) sim.Rates {
	return sim.Rates{Memory: h.Update, Vector: units.Flops(vectorShare * float64(h.Compute.F32)), Matrix: h.Compute.F32}
}

// alike counts the devices of a machine that equal one: those can share its work.
func alike(m machine.Machine, d machine.Device) (n int) {
	for _, o := range m.Devices {
		if o.Kind == d.Kind && o.Usable == d.Usable && o.Compute == d.Compute && !o.Shared {
			n++
		}
	}
	return max(n, 1)
}

// RatesOf turns what is known of a device into the simulator's rates.
func RatesOf(d machine.Device, t dtype.Type) sim.Rates {
	r := sim.Rates{Matrix: d.Compute.Rate(t), Sustained: d.Sustained.Or(d.Compute).Rate(t), Memory: d.Bandwidth, In: d.Link.In, Out: d.Link.Out,
		Bidirectional: d.Link.Bidirectional, Launch: d.Launch, Kernel: d.Kernel, Latency: d.Link.Latency, Tables: d.Tables[t.String()]}
	if t != dtype.F32 {
		r.MatrixF32 = d.Compute.Rate(dtype.F32)
	}
	r.Vector = d.Compute.F32
	if d.Kind == machine.CPU {
		r.Vector = units.Flops(vectorShare * float64(d.Compute.F32))
	}
	return r
}
