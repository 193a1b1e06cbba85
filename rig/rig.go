// Package rig opens the devices of this computer and describes it as a machine.Machine, so
// that plans and forecasts are made for the hardware they will run on. The command line and
// Go programs use the same Open, so that their forecasts agree.
//
// Devices are opened through the registry of package device by names such as "cpu",
// "cuda:0", "cuda:0/2" (half of a GPU) and "cuda:0,tf32"; a backend is known here as soon as
// a program imports its package. Sizes are read every time. Rates are measured when they are
// first needed (Options.Measure), in some seconds, and stored in a cache folder; times of
// single calls when a forecast first asks for them. Options.Calibrate measures everything
// again, with tables by the shapes of calls, which takes a minute or two for a GPU.
//
// Rates are what large work reaches: copies of many MiB from page-locked memory, matmuls of
// thousands by thousands of random numbers, the best of several tries. Tables hold the rates
// of calls by their shape, without the launch overhead of small ones.
package rig

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"spillway/device"
	_ "spillway/device/cpu" // every computer has one, and measuring GPUs needs it too
	"spillway/device/cpu/kernel"
	"spillway/machine"
)

// Options say how devices are opened and what is measured. The zero value stores nothing
// and measures only what takes milliseconds.
type Options struct {
	// Cache is the folder of measured rates and compiled kernels; "" has them measured and
	// compiled every time, and so little is measured (see Measure).
	Cache string
	// LibraryPaths are folders in which to look for GPU libraries before the common places.
	LibraryPaths []string
	// Drivers are those in which GPUs are looked for where no device is named; nil: all that
	// are registered.
	Drivers []string
	// Measure allows some seconds for the CPU's matmuls, optimizer steps and per-shape
	// tables and for the rates of GPUs the first time, and some milliseconds for each call
	// of a model on a GPU; without it they are taken from the cache or assumed.
	Measure bool
	// Assume takes rates from the cache or assumes them: nothing is measured, until Rig.Measure.
	Assume bool
	// Calibrate measures everything again, GPUs included.
	Calibrate bool
	// Disk is a folder for the disk tier; "" means none. MeasureDisk allows to write and
	// read back 256 MiB there the first time.
	Disk        string
	MeasureDisk bool
	// Report receives what is measured next; nil is fine.
	Report func(what string)
	// Stop is asked between measurements: its error ends them, and Open. Nil never does.
	Stop func() error
	// Machine, where it has devices, is the description to use: nothing is measured.
	Machine machine.Machine
	// System is where the facts of the computer are read, this computer if zero.
	System System

	sizes hostSizes // tests measure less
}

// UserOptions are those of the command line: rates and kernels are cached in the user's cache
// folder, and what is not there yet is measured, in some seconds.
func UserOptions() Options { return Options{Cache: UserCache(), Measure: true} }

// UserCache is the user's cache folder of this program; "" where the system has none.
func UserCache() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "spillway")
}

// Rig is this computer with the devices of a run, open and alike.
type Rig struct {
	Machine machine.Machine // its first devices are Devices, in the same order
	Devices []device.Device
	// Reason says why these devices were chosen where nobody named any: "no NVIDIA driver
	// found", or what kernels of the CPU were asked for: "kernels of avx2". It is also among the machine's notes.
	Reason string

	names []string // of the devices, for Reopen
	o     Options
	calls []*callTimes // by device, where calls are measured
	host  *hostCalls   // of the CPU next to the first GPU; nil where there is none
}

// Open opens devices by names separated by commas, and describes the computer with them.
// A name without a driver is an option of the devices before it: "cuda:0,cuda:1,tf32". ""
// and "auto" mean the first GPU that opens, else the CPU; "all" means every GPU of the
// first driver that has any, the largest first, else the CPU. The caller closes the rig.
func Open(names string, o Options) (*Rig, error) {
	if names != "" && strings.Contains(","+names+",", ",,") {
		return &Rig{}, fmt.Errorf("devices %q: a name is missing between commas", names)
	}
	return OpenList(splitNames(names), o)
}

// OpenList opens devices by their names, each with its options: "cpu:threads=2,link=1GB/s".
// Without names it opens all GPUs, like Open with "all".
func OpenList(names []string, o Options) (r *Rig, err error) {
	r = &Rig{o: o}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close())
		}
	}()
	switch {
	case len(names) == 0 || slices.Equal(names, []string{"all"}):
		err = r.openFirst(true)
	case slices.Equal(names, []string{"auto"}):
		err = r.openFirst(false)
	default:
		err = r.openNamed(names)
	}
	if err != nil {
		return r, err
	}
	return r, r.describe()
}

// describe describes the computer with the open devices.
func (r *Rig) describe() error {
	m, err := Describe(r.Devices, r.o)
	if err != nil {
		return err
	}
	r.Machine = m
	if r.o.Measure && len(r.o.Machine.Devices) == 0 {
		r.measureCalls()
	}
	if r.Reason != "" && len(r.o.Machine.Devices) == 0 {
		title := r.Machine.Devices[0].Name // "cuda:0"
		if r.Machine.Devices[0].Kind == machine.CPU {
			title = "CPU"
		}
		r.Machine.Note("device: %s (%s)", title, r.Reason)
	}
	return nil
}

// Measure measures what Options.Assume has put off: copies, in some tens of milliseconds, and
// with all of it what Options.Measure allows. What is in the cache is not measured again.
func (r *Rig) Measure(all bool) error {
	r.o.Assume, r.o.Measure = false, all
	return r.describe()
}

// measureCalls lets forecasts ask the devices for the times of calls. Equal devices have the
// same: the first is asked. CPUs measure short calls only, and tables serve for the others.
func (r *Rig) measureCalls() {
	for i, d := range r.Devices {
		t := newCallTimes(d, r.o)
		if i > 0 && r.Machine.Devices[i].Model == r.Machine.Devices[0].Model {
			t = r.calls[0]
		}
		r.calls = append(r.calls, t)
		r.Machine.Devices[i].Calls = t
		if r.host == nil {
			r.host = newHostCalls(d, r.Machine, r.o)
		}
		if i == 0 {
			r.host.described(r.Machine.Devices[0].Link.In)
		}
		r.Machine.Devices[i].HostCalls = r.host
	}
}

// splitNames splits what --device says. What names no driver belongs to the names before.
func splitNames(text string) (names []string) {
	switch text {
	case "", "auto":
		return []string{"auto"}
	}
	for name := range strings.SplitSeq(text, ",") {
		if driver, _, _ := strings.Cut(name, ":"); len(names) == 0 || driver == hostCPU || slices.Contains(device.Drivers(), driver) {
			names = append(names, name)
			continue
		}
		for i := range names { // an option of them
			if !strings.Contains(names[i], ":") {
				names[i] += ":"
			}
			names[i] += "," + name
		}
	}
	return names
}

// The driver of the CPU, and what machines call the CPU of this computer.
const (
	cpuDriver = "cpu"
	hostCPU   = "cpu0"
)

// openNamed opens devices that have names; they must be of one driver.
func (r *Rig) openNamed(names []string) error {
	first, _, _ := strings.Cut(names[0], ":")
	for _, name := range names {
		if name == hostCPU {
			name = cpuDriver
		}
		if driver, _, _ := strings.Cut(name, ":"); driver != first && names[0] != hostCPU {
			return fmt.Errorf("devices %s: a run is on devices of one kind, either CPUs or GPUs", strings.Join(names, ", "))
		}
		if err := r.add(name); err != nil {
			return fmt.Errorf("device %s: %w", name, err)
		}
	}
	if chosen := kernel.Chosen(); chosen != "" && r.Devices[0].Info().OnHost {
		r.Reason = "kernels of " + chosen
	}
	return nil
}

// openFirst opens the first GPU, or all GPUs of the first driver that has any, and the CPU
// where there is none. A GPU that exists but does not work is an error: computing on the
// CPU instead would hide it.
func (r *Rig) openFirst(all bool) error {
	var reasons []string
	drivers := r.o.Drivers
	if drivers == nil {
		drivers = device.Drivers()
	}
	for _, driver := range drivers {
		if driver == cpuDriver {
			continue
		}
		absent, err := r.openNumbered(driver, all)
		if err != nil {
			return fmt.Errorf("device %s: %w; name the device cpu to run without it", driver, err)
		}
		if len(r.Devices) > 0 {
			r.Reason = "the first GPU"
			if all && len(r.Devices) > 1 {
				r.Reason = fmt.Sprintf("all %d GPUs", len(r.Devices))
				slices.SortStableFunc(r.Devices, func(a, b device.Device) int { return int(b.Info().Limit>>20 - a.Info().Limit>>20) })
			}
			return nil
		}
		reasons = append(reasons, absent)
	}
	if r.Reason = strings.Join(reasons, ", "); len(reasons) == 0 {
		r.Reason = "no GPU backend in this program"
	}
	return r.add(cpuDriver)
}

// openNumbered opens the devices of a driver, from number 0 until there are no more, or the
// first alone. Devices whose memory is the host's do not count as GPUs.
func (r *Rig) openNumbered(driver string, all bool) (absent string, err error) {
	for n := 0; n == 0 || all; n++ {
		err := r.add(fmt.Sprintf("%s:%d", driver, n))
		var none *device.AbsentError
		if errors.As(err, &none) {
			return none.Reason, nil
		}
		if err != nil {
			return "", err
		}
		if last := r.Devices[len(r.Devices)-1]; last.Info().OnHost {
			r.Devices, r.names = r.Devices[:len(r.Devices)-1], r.names[:len(r.names)-1]
			return driver + " is not a GPU", last.Close()
		}
	}
	return "", nil
}

// add opens a device with what the options say of the computer.
func (r *Rig) add(name string) error {
	host, err := r.o.System.Usable()
	if err != nil {
		return err
	}
	o := device.Options{LibraryPaths: r.o.LibraryPaths, HostMemory: int64(host)}
	if r.o.Cache != "" {
		o.Cache = filepath.Join(r.o.Cache, "kernels")
	}
	opened, err := device.Open(name, o)
	if err == nil {
		r.Devices, r.names = append(r.Devices, opened), append(r.names, name)
	}
	return err
}

// Reopen opens the devices again after Close, without describing the computer again.
func (r *Rig) Reopen() error {
	names := r.names
	r.names = nil
	if err := r.openNamed(names); err != nil {
		return err
	}
	for i, t := range r.calls {
		if i == 0 || t != r.calls[0] {
			t.opened(r.Devices[i])
		}
	}
	if r.host != nil {
		r.host.opened(r.Devices[0])
	}
	return nil
}

// MeasureAnew lets forecasts of another model measure its calls for as long as those of the first could.
func (r *Rig) MeasureAnew() {
	for _, t := range r.calls {
		t.anew()
	}
}

// Close closes the devices, the last first.
func (r *Rig) Close() error {
	var errs []error
	for _, t := range r.calls {
		errs = append(errs, t.close())
	}
	if r.host != nil {
		errs = append(errs, r.host.close())
	}
	for _, d := range slices.Backward(r.Devices) {
		errs = append(errs, d.Close())
	}
	r.Devices = nil
	return errors.Join(errs...)
}

// Forget removes what is cached of this computer's rates, so that they are measured again the
// next time it is opened: a run was faster than they allow.
func (r *Rig) Forget() error {
	errs := []error{r.o.forget(ratesKey(r.Machine))}
	for i, d := range r.Devices {
		errs = append(errs, r.o.forget(deviceKey(d)))
		if i < len(r.calls) {
			errs = append(errs, r.calls[i].forget())
		}
	}
	if r.host != nil {
		errs = append(errs, r.o.forget(r.host.key))
	}
	return errors.Join(errs...)
}

// Allocated is the most memory that was ever allocated on all devices together, in bytes.
func (r *Rig) Allocated() (sum int64) {
	for _, d := range r.Devices {
		if m, counts := d.(device.Meter); counts {
			_, peak := m.Allocated()
			sum += peak
		}
	}
	return sum
}

// Footprint predicts how many bytes the GPUs' drivers will count for this program, when so many more
// are allocated on each device and so many page-locked on the host. The kernels that will
// run must have been asked for. What measuring holds is not counted: a run gives it back before it allocates. It is 0 where no driver counts.
func (r *Rig) Footprint(onDevice []int64, pinned int64) (sum int64) {
	for i, g := range r.gpus() {
		var bytes int64
		for _, i := range g.shares {
			if i < len(onDevice) {
				bytes += onDevice[i]
			}
		}
		sum += g.memory.Footprint(bytes, pinned)
		if i == 0 && r.host != nil {
			sum -= g.memory.Footprint(r.host.held()) - g.memory.Footprint(0, 0)
		}
	}
	return sum
}

// DriverUsed is how many bytes of the GPUs the drivers count for this program. It is 0 where
// no driver counts.
func (r *Rig) DriverUsed() (sum int64, err error) {
	for _, g := range r.gpus() {
		used, err := g.memory.Used()
		if err != nil {
			return 0, err
		}
		sum += used
	}
	return sum, nil
}

// gpu is a GPU whose driver counts its memory, with the indices of the devices that are
// shares of it.
type gpu struct {
	memory device.DriverMemory
	shares []int
}

// gpus lists the GPUs, each once where several devices are shares of it: those have the
// same name.
func (r *Rig) gpus() (list []gpu) {
	byName := map[string]int{}
	for i, d := range r.Devices {
		m, counts := d.(device.DriverMemory)
		if !counts {
			continue
		}
		at, known := byName[d.Info().Name]
		if !known {
			at = len(list)
			byName[d.Info().Name] = at
			list = append(list, gpu{memory: m})
		}
		list[at].shares = append(list[at].shares, i)
	}
	return list
}
