package spillway

import (
	"errors"
	"fmt"
	"slices"

	"spillway/device"
	_ "spillway/device/cpu" // there is always a processor
	"spillway/internal/vfs"
	"spillway/machine"
	"spillway/units"
)

// copyBytes is how much is copied to measure this computer when a model is wrapped:
// enough for a rate, little enough not to be noticed.
const copyBytes = 32 * units.MiB

// open opens the devices and describes the machine they are part of.
func (w *Wrapped) open() (err error) {
	if w.devices = w.c.On; len(w.devices) == 0 {
		w.opened, err = w.openDevices()
		w.devices = w.opened
	}
	if err != nil {
		return err
	}
	if w.c.Disk != "" {
		if err := vfs.MkdirAll(vfs.OS, w.c.Disk); err != nil {
			return fmt.Errorf("making the folder %s: %w", w.c.Disk, err)
		}
	}
	w.machine, err = w.c.machine(w.devices)
	return err
}

// openDevices opens those that are named, or picks some.
func (w *Wrapped) openDevices() ([]device.Device, error) {
	if len(w.c.Devices) == 0 {
		return w.pick()
	}
	var list []device.Device
	for _, name := range w.c.Devices {
		dev, err := device.Open(name)
		if err != nil {
			return list, fmt.Errorf("opening device %s: %w", name, err)
		}
		list = append(list, dev)
	}
	return list, nil
}

const processor = "cpu"

// pick opens all cards of the first driver that finds any, the one with most memory
// first, or else the processor.
func (w *Wrapped) pick() ([]device.Device, error) {
	for _, driver := range device.Drivers() {
		if driver == processor {
			continue
		}
		cards, err := openCards(driver)
		if len(cards) > 0 {
			slices.SortStableFunc(cards, func(a, b device.Device) int { return int(b.Info().Limit>>20 - a.Info().Limit>>20) })
			return cards, nil
		}
		w.note(fmt.Sprintf("no %s device, so the processor computes: %v", driver, err))
	}
	dev, err := device.Open(processor)
	return []device.Device{dev}, err
}

// openCards opens a driver's devices by number until there are no more; the error is
// why the next one does not open.
func openCards(driver string) (list []device.Device, err error) {
	for {
		dev, err := device.Open(fmt.Sprintf("%s:%d", driver, len(list)))
		if err != nil {
			return list, err
		}
		list = append(list, dev)
	}
}

// machine is the one configured, or this computer with the given devices.
func (c Config) machine(on []device.Device) (machine.Machine, error) {
	if len(c.Machine.Devices) > 0 {
		return c.Machine, nil
	}
	m, err := machine.Probe(machine.Options{CopyBytes: copyBytes, System: c.System})
	if err != nil {
		return m, err
	}
	if on[0].Info().OnHost {
		m.Devices = share(m.Devices[0], len(on))
		return m, nil
	}
	cards, err := machine.Parse(fmt.Sprintf("%dxgpu:%d@usable=%d", len(on), on[0].Info().Limit, on[0].Info().Limit))
	if err != nil {
		return m, fmt.Errorf("describing %d devices like %s: %w", len(on), on[0].Info().Name, err)
	}
	m.Devices = cards.Devices
	return m, nil
}

// share divides a processor among logical devices.
func share(d machine.Device, n int) []machine.Device {
	part := units.Flops(n)
	d.Compute.F32, d.Compute.BF16, d.Compute.F16 = d.Compute.F32/part, d.Compute.BF16/part, d.Compute.F16/part
	d.Bandwidth /= units.Rate(n)
	d.Link.In, d.Link.Out = d.Link.In/units.Rate(n), d.Link.Out/units.Rate(n)
	list := make([]machine.Device, n)
	for i := range list {
		list[i] = d
		list[i].Name = fmt.Sprintf("%s%d", processor, i)
	}
	return list
}

// closeDevices closes what open has opened.
func (w *Wrapped) closeDevices() error {
	var errs []error
	for _, d := range slices.Backward(w.opened) {
		errs = append(errs, d.Close())
	}
	w.opened = nil
	return errors.Join(errs...)
}
