package spillway

import (
	"errors"
	"fmt"
	"slices"

	"spillway/internal/vfs"
	"spillway/rig"
)

// open opens the devices and describes the machine they are part of.
func (w *Wrapped) open() (err error) {
	o := rig.Options{Machine: w.c.Machine, System: w.c.System}
	if w.devices = w.c.On; len(w.devices) == 0 {
		here, err := rig.OpenList(w.c.Devices, o)
		if err != nil {
			return err
		}
		w.devices, w.opened, w.machine = here.Devices, here.Devices, here.Machine
		if w.devices[0].Info().OnHost && here.Reason != "" {
			w.note(fmt.Sprintf("device: CPU (%s)", here.Reason))
		}
	}
	if w.c.Disk != "" {
		if err := vfs.MkdirAll(vfs.OS, w.c.Disk); err != nil {
			return fmt.Errorf("making the folder %s: %w", w.c.Disk, err)
		}
	}
	if len(w.opened) == 0 {
		w.machine, err = rig.Describe(w.devices, o)
	}
	return err
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
