package goal

import (
	"fmt"

	"spillway/device"
	"spillway/device/sim"
	"spillway/dtype"
	"spillway/machine"
	"spillway/op"
	"spillway/units"
)

// SiteOf is a device of a machine as a place to plan for, computing in t. Kernels
// are the simulator's, until a real device is put in their place.
func SiteOf(m machine.Machine, name string, t dtype.Type) (Site, error) {
	d, ok := m.Device(name)
	if !ok {
		return Site{}, fmt.Errorf("machine %s has no device %q", m.Name, name)
	}
	site := Site{
		Device: d, DType: t, Budget: int64(d.Usable), Context: int64(d.Context), HostBudget: int64(m.Host.Usable), Alignment: Alignment,
		Kernels:    sim.NewVirtual(d, t, 0, Alignment),
		HostPinned: d.Kind == machine.GPU, SharedMemory: d.Shared,
		Disk: Disk{Budget: int64(m.Disk.Free), Read: m.Disk.Read, Write: m.Disk.Write},
	}
	var alike []string
	for _, o := range m.Devices { // equal ones can share its work
		if o.Kind == d.Kind && o.Usable == d.Usable && o.Compute == d.Compute && !o.Shared {
			alike = append(alike, o.Name)
		}
	}
	site.Devices, site.Peer = max(len(alike), 1), slowestPeer(m, alike)
	if d.Kind == machine.GPU { // updates are bound by the memory bus
		if d.Known() {
			site.Kernels = describedGPU{sim.NewVirtual(d, t, 0, Alignment), d}
		}
		site.CPU = machine.Device{Kind: machine.CPU, Bandwidth: m.Host.Update, Compute: m.Host.Compute}
		site.CPUKernels = sim.NewVirtual(site.CPU, t, 0, Alignment)
	}
	return site, nil
}

// slowestPeer is the rate of the slowest direct link between two of some devices; 0 where a pair has none, which goes
// through the host and holds up the others.
func slowestPeer(m machine.Machine, names []string) (slowest units.Rate) {
	for i, a := range names {
		for _, b := range names[i+1:] {
			p, linked := m.Peer(a, b)
			if !linked {
				return 0
			}
			if slowest == 0 || p.Rate < slowest {
				slowest = p.Rate
			}
		}
	}
	return slowest
}

// LooksUp has a CPU look embeddings up in host memory where its own is limited: a step needs a few rows of a table that it would
// stream whole.
func (s Site) LooksUp() Site {
	if s.Device.Kind == machine.CPU {
		s.CPU, s.CPUKernels, s.LooksUpOnly = s.Device, s.Kernels, true
	}
	return s
}

// describedGPU answers for a GPU that is not at hand: it has a kernel for every op, and for those fused ones that such a GPU
// has.
type describedGPU struct {
	*sim.Virtual
	gpu machine.Device
}

// FusesOps implements device.OpFuser.
func (describedGPU) FusesOps() bool { return true }

// Kernel of a call.
func (d describedGPU) Kernel(c op.Call) (device.Kernel, error) {
	if c.Kind.Fused() && !d.gpu.Fuses(c) {
		return nil, &device.NoKernelError{Device: d.gpu.Name, Call: c, Reason: "it is described, and GPUs like it have none"}
	}
	return d.Virtual.Kernel(c)
}
