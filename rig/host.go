package rig

import (
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"time"

	"spillway/device"
	"spillway/device/cpu/kernel"
	"spillway/dtype"
	"spillway/internal/stopwatch"
	"spillway/machine"
	"spillway/op"
	"spillway/units"
)

// hostSizes say how much work the measurements of the host and the disk are; zero sizes
// are replaced by the defaults.
type hostSizes struct {
	copyBytes units.Bytes // of copies: more than caches hold
	diskBytes units.Bytes
	matmul    int64            // side of the CPU's matrices
	params    int64            // of the CPU's optimizer steps
	patience  time.Duration    // with the CPU's matmuls
	grid      grid             // of the CPU's tables
	gpu       calibrationSizes // of a GPU, the first time
	looks     bool             // whether cached rates are compared with a quick look
}

// Without leave to spend seconds, copies are just large enough for a rate.
const (
	copyBytes      = 256 * units.MiB
	copyBytesQuick = 32 * units.MiB
	diskBytes      = 256 * units.MiB
	matmulSide     = 1024
	matmulPatience = 400 * time.Millisecond
	lookPatience   = 20 * time.Millisecond
	// lookInterval is how old rates are at least that are compared with a quick look.
	lookInterval = time.Minute
)

func (o Options) withDefaults() Options {
	if o.Report == nil {
		o.Report = func(string) {}
	}
	if o.Stop == nil {
		o.Stop = func() error { return nil }
	}
	s := &o.sizes
	s.looks = s.looks || s.copyBytes == 0
	switch {
	case s.copyBytes > 0:
	case o.Measure || o.Calibrate:
		s.copyBytes = copyBytes
	default:
		s.copyBytes = copyBytesQuick
	}
	if s.diskBytes == 0 {
		s.diskBytes = diskBytes
	}
	if s.gpu.Side == 0 {
		s.gpu = quickSizes
	}
	if s.matmul == 0 {
		s.matmul, s.patience, s.grid = matmulSide, matmulPatience, cpuGrid
	}
	return o
}

// calibrateHost fills the rates of the host and the disk and returns the CPU's tables and what its copies reach. It
// fails when it is stopped: a rate can be assumed, with a note.
func (o Options) calibrateHost(m *machine.Machine) (cpu machine.Device, err error) {
	e, _ := o.cached(ratesKey(*m), nil, func(e *entry) error { return o.measureHost(e, m.Host) })
	o.raiseHost(&e, m.Host)
	if err := o.Stop(); err != nil {
		return cpu, err
	}
	m.Calibrated = e.At
	m.Notes = append(m.Notes, e.Notes...)
	m.Host.Fill(*e.Host, machine.Measured)
	switch {
	case m.Disk.Free == 0:
	case !o.MeasureDisk:
		if d, err := o.load(diskKey(*m, o)); err == nil && d.Disk != nil {
			m.Disk.Fill(*d.Disk, machine.Measured)
		} else {
			m.Note("the rates of the disk were not measured: it was not asked for")
		}
	default:
		// What a disk gives depends on who else uses it: often it is another computer's.
		old := func(e entry) bool { return e.age() > lookInterval }
		d, _ := o.cached(diskKey(*m, o), old, func(e *entry) error { return o.measureDisk(e, m.Disk) })
		m.Notes = append(m.Notes, d.Notes...)
		m.Disk.Fill(*d.Disk, machine.Measured)
	}
	if e.Device != nil {
		cpu = *e.Device
	}
	return cpu, nil
}

// diskKey names the disk of a folder.
func diskKey(m machine.Machine, o Options) string { return hostKey(m) + "|disk|" + o.Disk }

// ratesKey names what the rates of a host's CPU depend on: its kernels too.
func ratesKey(m machine.Machine) string { return hostKey(m) + chosenKernels() }

// chosenKernels is part of what is cached of a CPU whose best kernels are not in use.
func chosenKernels() string {
	if name := kernel.Chosen(); name != "" {
		return "|" + name
	}
	return ""
}

// hostKey names a computer.
func hostKey(m machine.Machine) string {
	return strings.Join([]string{m.Name, m.Host.CPU, strconv.Itoa(m.Host.Cores) + " cores", "host"}, "|")
}

// raiseHost looks for some tens of milliseconds whether copies or matmuls are much faster
// than what is cached, which was measured in a busy minute then, or with slower kernels: all rates of that
// kind and type are raised by the same factor. Nobody waits for another measurement of everything, and what
// disturbs looks only makes them slower.
func (o Options) raiseHost(e *entry, h machine.Host) {
	if !o.sizes.looks || !o.Measure || e.Host == nil || e.Host.Copy == 0 || e.age() < lookInterval {
		return
	}
	copies := float64(copyRate(min(lookBytes(), h.Usable/8), h.Cores, copyChunks) / e.Host.Copy)
	matmuls, most := map[dtype.Type]float64{}, copies
	if dev, err := device.Open(cpuDriver, device.Options{}); err == nil {
		defer dev.Close() // nothing is allocated on it any more
		for t, cached := range map[dtype.Type]units.Flops{dtype.F32: e.Host.Compute.F32, dtype.BF16: e.Host.Compute.BF16} {
			if rate, err := cpuMatmul(dev, t, o.sizes.matmul, lookPatience); err == nil && cached > 0 {
				matmuls[t] = float64(rate / cached)
				most = max(most, matmuls[t])
			}
		}
	}
	if most < muchFaster {
		return
	}
	e.raise(copies, matmuls)
	if o.Cache != "" {
		_ = o.store(*e) // else the next look finds the same
	}
}

// lookBytes is the size of copies of a quick look: several times what the last cache holds. What is cached was measured with as much as
// no cache holds, and a look at a cache would raise all rates of memory to those of the cache.
func lookBytes() units.Bytes { return min(max(4*units.Bytes(lastCache()), copyBytesQuick), copyBytes) }

// raise multiplies the rates of a host that are bound by memory, and those bound by arithmetic, by type. It lowers
// none.
func (e *entry) raise(memory float64, arithmetic map[dtype.Type]float64) {
	memory = max(memory, 1)
	for _, rate := range []*units.Rate{&e.Host.Copy, &e.Host.CopyOne, &e.Host.Update} {
		*rate *= units.Rate(memory)
	}
	for t, rate := range map[dtype.Type]*units.Flops{dtype.F32: &e.Host.Compute.F32, dtype.BF16: &e.Host.Compute.BF16} {
		*rate *= units.Flops(max(arithmetic[t], 1))
	}
	e.Host.Compute.F16 *= units.Flops(max(arithmetic[dtype.F32], 1)) // computed in f32
	if e.Device == nil {
		return
	}
	for _, rate := range []*units.Rate{&e.Device.Link.In, &e.Device.Link.Out, &e.Device.Link.HostBandwidth} {
		*rate *= units.Rate(memory)
	}
	for _, t := range []dtype.Type{dtype.F32, dtype.BF16} {
		for v, table := range e.Device.Tables[t.String()] {
			factor := memory
			if _, matrix := shaped[v]; matrix {
				factor = max(arithmetic[t], 1)
			}
			for i := range table.Rates {
				table.Rates[i] *= factor
			}
		}
	}
}

// measureHost measures what Options allow. Copies alone are not stored, so that another
// program measures the rest.
func (o Options) measureHost(e *entry, h machine.Host) error {
	if e.Host = new(machine.Host); o.Assume {
		return errTransient
	}
	n := min(o.sizes.copyBytes, h.Usable/8)
	if o.Measure || o.Calibrate {
		o.Report("copies")
	}
	one := copyRate(n, 1, copyChunks)
	e.Host = &machine.Host{CopyOne: one, Copy: max(copyRate(n, h.Cores, copyChunks), one)}
	if !o.Measure && !o.Calibrate {
		e.note("the CPU's matmuls and optimizer steps were not measured: their rates are assumed")
		return errTransient
	}
	dev, err := device.Open(cpuDriver, device.Options{})
	if err != nil {
		e.note("the rates of the CPU could not be measured: %v", err)
		return errTransient
	}
	defer func() {
		if err := dev.Close(); err != nil {
			e.note("closing the CPU after measuring it: %v", err)
		}
	}()
	o.Report("matmuls")
	for t, rate := range map[dtype.Type]*units.Flops{dtype.F32: &e.Host.Compute.F32, dtype.BF16: &e.Host.Compute.BF16} {
		if err := o.Stop(); err != nil {
			return err
		}
		if *rate, err = cpuMatmul(dev, t, o.sizes.matmul, o.sizes.patience); err != nil {
			e.note("the rate of %v matmuls could not be measured: %v", t, err)
		}
	}
	if err := o.Stop(); err != nil {
		return err
	}
	o.Report("optimizer steps")
	params, err := o.updateParams()
	if err == nil {
		e.Host.Update, err = watchUpdates(dev, params, func() int64 { return 0 })
	}
	if err != nil {
		e.note("the rate of optimizer steps could not be measured: %v", err)
	}
	link := copyRate(n, 1, kernel.Copy) // as queues of the CPU copy, each with one core
	all := max(copyRate(n, h.Cores, kernel.Copy), link)
	e.Device = &machine.Device{Kind: machine.CPU, Tables: machine.Tables{}, Link: machine.Link{In: link, Out: link, HostBandwidth: 2 * all}}
	for _, t := range []dtype.Type{dtype.F32, dtype.BF16} {
		o.Report(fmt.Sprintf("calls of many shapes in %v", t))
		table, err := shapeTables(dev, t, o.sizes.grid, o.Stop)
		if stopped := o.Stop(); stopped != nil {
			return stopped
		}
		if err != nil {
			e.note("calls of many shapes in %v could not be measured: %v", t, err)
			continue
		}
		e.Device.Tables[t.String()] = table
	}
	return nil
}

// cpuMatmul measures matmuls on all cores: the best of those that fit into patience.
func cpuMatmul(dev device.Device, t dtype.Type, side int64, patience time.Duration) (units.Flops, error) {
	rate, err := matmulRate(dev, t, side, func(b *bench, call op.Call) (time.Duration, error) {
		w, err := b.prepare(call)
		if err != nil {
			return 0, err
		}
		best := w.once
		for start := stopwatch.Now(); stopwatch.Since(start) < patience; {
			took, err := w.row(1)
			if err != nil {
				return 0, err
			}
			best = min(best, took)
		}
		return best, nil
	})
	if err == nil && rate == 0 {
		err = errors.New("the CPU backend has none")
	}
	return rate, err
}

// updateParams is how many params optimizer steps are measured with: several times what
// caches hold, which is hundreds of megabytes where there are many cores, but no more than a
// quarter of the memory that is left.
func (o Options) updateParams() (int64, error) {
	const least, perCore, most, bytesPerParam = 16 << 20, 8 << 20, 128 << 20, 16
	usable, err := o.System.Usable()
	if err != nil || o.sizes.params > 0 {
		return o.sizes.params, err
	}
	return min(max(least, perCore*int64(runtime.GOMAXPROCS(0))), most, int64(usable)/4/bytesPerParam), nil
}

// measureDisk measures the disk's rates. What goes wrong is not stored: next time there may
// be space.
func (o Options) measureDisk(e *entry, d machine.Disk) error {
	e.Disk = &machine.Disk{}
	if d.Free < 2*o.sizes.diskBytes {
		e.note("the rates of the disk were not measured: %v are free, the file to measure with has %v", d.Free, o.sizes.diskBytes)
		return errTransient
	}
	o.Report("the disk")
	r, err := diskRates(d.Path, int64(o.sizes.diskBytes))
	if err != nil {
		e.note("the rates of the disk could not be measured: %v", err)
		return errTransient
	}
	if !r.direct {
		e.note("the disk has no direct I/O: its rates are those of the page cache")
	}
	e.Disk.Read, e.Disk.Write = r.read, r.write
	return nil
}
