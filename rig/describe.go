package rig

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"

	"spillway/device"
	"spillway/device/cpu/kernel"
	"spillway/internal/cores"
	"spillway/internal/vfs"
	"spillway/machine"
	"spillway/units"
)

// Describe describes this computer with devices that are open: its sizes are read, its
// rates measured or taken from the cache. The machine's devices are those, in their order;
// GPUs are followed by the CPU. What could not be had is in Notes.
func Describe(devices []device.Device, o Options) (m machine.Machine, err error) {
	if len(o.Machine.Devices) > 0 {
		return o.Machine, nil
	}
	o = o.withDefaults()
	facts, err := o.System.readFacts()
	if err != nil {
		return m, fmt.Errorf("reading the facts of this computer: %w", err)
	}
	if m.Name, err = os.Hostname(); err != nil {
		return m, fmt.Errorf("asking for this computer's name: %w", err)
	}
	m.Notes = facts.notes
	m.Host = machine.Host{CPU: facts.cpu, Features: usedFeatures(facts.features, kernel.Chosen())}
	onHost := len(devices) > 0 && devices[0].Info().OnHost
	if len(devices) > 0 && !onHost {
		facts.usable = lessForGPUs(facts.usable)
	}
	threads := min(runtime.NumCPU(), cores.Count()) // the second knows CPU quotas
	m.Host.Fill(machine.Host{Cores: threads, Memory: facts.memory, Limit: facts.limit, Usable: facts.usable}, machine.Measured)
	if err := describeDisk(&m, o.Disk); err != nil {
		return m, err
	}
	measured, err := o.calibrateHost(&m)
	if err != nil {
		return m, err
	}
	cpu := machine.Device{
		Kind: machine.CPU, Memory: m.Host.Memory, Usable: m.Host.Usable, Shared: true, Tables: measured.Tables,
		Sources: machine.Sources{"memory": machine.Measured, "usable": machine.Measured},
	}
	cpu.Fill(machine.Device{Link: measured.Link}, machine.Measured)
	if onHost { // what copies, a kernel cannot have
		cpu.Link.Cores = max(threads/len(devices), 1)
	} else {
		for _, d := range devices {
			described, err := o.describeGPU(d, &m)
			if err != nil {
				return m, err
			}
			m.Add(described)
		}
	}
	m.Add(cpu)
	m.Complete()
	for i, d := range devices {
		if rounds, can := d.(device.TF32); can && rounds.TF32() {
			m.Devices[i] = AsTF32(m.Devices[i])
		}
	}
	if onHost && len(devices) > 1 {
		m.Devices = share(m.Devices[0], len(devices))
	}
	return m, m.Check()
}

// usedFeatures are the instruction sets of a CPU that kernels use, where a set of them was chosen; "" is the best.
func usedFeatures(features []string, chosen string) []string {
	switch chosen {
	case "avx2":
		return slices.DeleteFunc(features, func(name string) bool { return strings.HasPrefix(name, "avx512") || strings.HasPrefix(name, "amx") })
	case "portable":
		return nil
	}
	return features
}

// describeDisk reads the free space of the folder.
func describeDisk(m *machine.Machine, path string) error {
	if path == "" {
		return nil
	}
	bytes, err := vfs.FreeSpace(path)
	if err != nil {
		return fmt.Errorf("asking for the free space of %s: %w; name a folder that exists", path, err)
	}
	free := units.Bytes(bytes)
	if free == 0 {
		m.Note("the disk of %s is full, so there is no disk tier", path)
	}
	m.Disk.Path = path
	m.Disk.Fill(machine.Disk{Free: free}, machine.Measured)
	return nil
}

// describeGPU has the sizes of a GPU, and its rates where they are in the cache or are to
// be measured now.
func (o Options) describeGPU(dev device.Device, m *machine.Machine) (machine.Device, error) {
	info := dev.Info()
	d := machine.Device{
		Name: info.Name, Kind: machine.GPU, Memory: units.Bytes(info.Limit), Usable: units.Bytes(info.Limit),
		Sources: machine.Sources{"memory": machine.Measured, "usable": machine.Measured},
	}
	for _, other := range m.Devices {
		if other.Name == d.Name { // another share of the same GPU
			d.Name = fmt.Sprintf("%s.%d", info.Name, len(m.Devices))
		}
	}
	if memory, counts := dev.(device.DriverMemory); counts {
		_, total, err := memory.Memory()
		if err != nil {
			return d, err
		}
		d.Memory = units.Bytes(total)
	}
	if hardware, knows := dev.(device.Hardware); knows {
		if listed, ok := machine.FindGPU(hardware.Model(), d.Memory); ok {
			d.Model = listed
		} else {
			d.Model = strings.NewReplacer(",", " ", ":", " ", "@", " ", "/", " ").Replace(hardware.Model())
		}
	}
	e, err := o.cached(deviceKey(dev), func(e entry) bool { return o.fasterLink(e, dev) }, func(e *entry) error {
		sizes := gpuSizes
		switch {
		case o.Calibrate:
		case o.Measure:
			sizes = o.sizes.gpu
		default:
			return errNotCached
		}
		measured, err := calibrate(dev, o, sizes)
		e.Device = &measured
		return err
	})
	switch {
	case err == nil:
		d = d.WithMeasured(*e.Device)
	case o.Stop() != nil:
		return d, o.Stop()
	case o.Calibrate:
		return d, err
	case !errors.Is(err, errNotCached):
		m.Note("the rates of %s could not be measured: %v", info.Name, err)
	}
	d.Fill(machine.Device{Context: units.Bytes(dev.Info().Overhead + laterKernels)}, machine.Measured)
	m.Notes = append(m.Notes, e.Notes...)
	return d, nil
}

// fasterLink looks for some milliseconds whether copies are much faster than what is cached.
func (o Options) fasterLink(e entry, dev device.Device) bool {
	var now machine.Device
	if !o.sizes.looks || e.Device == nil || measureCopies(&now, dev, calibrationSizes{Copy: 16 * units.MiB}) != nil {
		return false
	}
	return now.Link.In > muchFaster*e.Device.Link.In || now.Link.Out > muchFaster*e.Device.Link.Out
}

// laterKernels is what kernels take of a GPU that a plan asks for after the GPU was described:
// up to 40 MiB were seen. A plan that takes more is made again.
const laterKernels = 32 << 20

// deviceKey names what the rates of a device depend on.
func deviceKey(dev device.Device) string {
	host, _ := os.Hostname() // the same GPU has another link in another computer
	if hardware, knows := dev.(device.Hardware); knows {
		address, _ := hardware.Address()
		return gpuKey(host, hardware.Model(), address)
	}
	return strings.Join([]string{"device", host, dev.Info().Name}, "|")
}

// gpuKey names a GPU in a slot of a computer.
func gpuKey(host, model, address string) string {
	return strings.Join([]string{"device", host, model, address}, "|")
}

// MeasuredLink is the link of a GPU of this computer as it was last measured, by the GPU's name and its
// address on the PCI bus; false where it was not. No device is opened.
func MeasuredLink(cache, model, address string) (machine.Link, bool) {
	host, _ := os.Hostname()
	e, err := Options{Cache: cache}.load(gpuKey(host, model, address))
	if err != nil || e.Device == nil {
		return machine.Link{}, false
	}
	return e.Device.Link, true
}

// tf32 is what machine.Compute and Tables call f32 arithmetic that rounds its operands.
const tf32 = "tf32"

// AsTF32 describes a GPU whose f32 arithmetic is TF32.
func AsTF32(d machine.Device) machine.Device {
	d.Compute.F32 = max(d.Compute.F32, d.Compute.TF32)
	d.Sustained.F32 = d.Sustained.TF32
	if d.Tables = maps.Clone(d.Tables); d.Tables == nil {
		d.Tables = machine.Tables{}
	}
	d.Tables["f32"] = d.Tables[tf32]
	return d
}

// share divides the CPU among n devices.
func share(d machine.Device, n int) []machine.Device {
	part := units.Flops(n)
	d.Compute.F32, d.Compute.BF16, d.Compute.F16 = d.Compute.F32/part, d.Compute.BF16/part, d.Compute.F16/part
	d.Bandwidth /= units.Rate(n)
	d.Link.In, d.Link.Out, d.Link.HostBandwidth = d.Link.In/units.Rate(n), d.Link.Out/units.Rate(n), d.Link.HostBandwidth/units.Rate(n)
	list := make([]machine.Device, n)
	for i := range list {
		list[i] = d
		list[i].Name = fmt.Sprintf("%s%d", machine.CPU, i)
	}
	return list
}

// UsableHost is what Machine.Host.Usable would be if the machine were described now.
func UsableHost(m machine.Machine, s System) (units.Bytes, error) {
	usable, err := s.Usable()
	for _, d := range m.Devices {
		if !d.Shared {
			return lessForGPUs(usable), err
		}
	}
	return usable, err
}
