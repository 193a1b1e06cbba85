package machine

import (
	"fmt"
	"os"
	"runtime"
	"time"

	"spillway/dtype"
	"spillway/units"
)

// Options say what Probe looks at and how far it goes. The zero value measures
// memory copies, keeps nothing and describes no disk.
type Options struct {
	// CacheDir keeps measured rates between runs; "" keeps nothing. Sizes are read
	// anew every time.
	CacheDir string
	// Refresh measures again even if the cache has an answer; so does an answer
	// older than MaxAge, where that is not zero.
	Refresh bool
	MaxAge  time.Duration
	// Version is that of the program: another version measures again.
	Version string
	// Arithmetic measures the matrix product of all cores in a type. It comes from
	// whoever knows a CPU backend; nil leaves the rate assumed, with a note.
	Arithmetic func(dtype.Type) (units.Flops, error)
	// Updates measures Host.Update, likewise.
	Updates func() (units.Rate, error)
	// Tables measures calls of many sizes that compute in a type, likewise; nil has
	// forecasts take the rates of large work for small work too.
	Tables func(dtype.Type) (ByVariant, error)
	// Tell is told what is measured next; nil tells nobody.
	Report func(what string)
	// DiskPath is a folder for the disk tier; "" means none. MeasureDisk writes and
	// reads back DiskBytes (256 MiB if zero) there.
	DiskPath    string
	MeasureDisk bool
	DiskBytes   units.Bytes
	// CopyBytes is the size of the measured copies, 256 MiB if zero: more than caches hold.
	CopyBytes units.Bytes
	// Devices are those besides the CPU, found by whoever can open them, with the
	// figures that are known and their sources. They come before the CPU and keep
	// their names; what is not known is published of the card or assumed.
	Devices []Device
	// System is where facts are read, this computer if zero.
	System System
	// Now is the clock of the cache, time.Now if nil.
	Now func() time.Time
}

// measuredBytes is how much a measurement moves unless told otherwise.
const measuredBytes = 256 * units.MiB

// Probe describes this computer: its sizes read, its rates measured or taken from
// the cache. The last device is the CPU, sharing the host's memory; Options name
// others. What could not be had is in Notes.
func Probe(o Options) (Machine, error) {
	o = o.withDefaults()
	facts, err := o.System.readFacts()
	if err != nil {
		return Machine{}, fmt.Errorf("looking at this computer: %w", err)
	}
	name, err := os.Hostname()
	if err != nil {
		return Machine{}, fmt.Errorf("asking this computer's name: %w", err)
	}
	m := Machine{Name: name, Notes: facts.notes}
	m.Host = Host{CPU: facts.cpu, Features: facts.features}
	cores := min(runtime.NumCPU(), runtime.GOMAXPROCS(0)) // the second knows CPU quotas
	if len(o.Devices) > 0 {
		facts.usable = lessForGPUs(facts.usable)
	}
	measuredHost := Host{Cores: cores, Memory: facts.memory, Limit: facts.limit, Usable: facts.usable}
	figures{m.Host.figures(), &m.Host.Sources}.fill(measuredHost.figures(), Measured)
	if err := m.probeDisk(o.DiskPath); err != nil {
		return Machine{}, err
	}
	tables := m.calibrate(o)
	for i, d := range o.Devices {
		m.add(d)
		m.Devices[i].Name = d.Name
	}
	m.add(Device{
		Kind: CPU, Memory: m.Host.Memory, Usable: m.Host.Usable, Shared: true, Tables: tables,
		Sources: Sources{"memory": Measured, "usable": Measured},
	})
	m.assume()
	return m, m.Check()
}

func (o Options) withDefaults() Options {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Report == nil {
		o.Report = func(string) {}
	}
	if o.CopyBytes == 0 {
		o.CopyBytes = measuredBytes
	}
	if o.DiskBytes == 0 {
		o.DiskBytes = measuredBytes
	}
	return o
}

// probeDisk reads the free space of the folder.
func (m *Machine) probeDisk(path string) error {
	if path == "" {
		return nil
	}
	free, err := freeBytes(path)
	if err != nil {
		return fmt.Errorf("asking for the free space of %s: %w; name a folder that exists", path, err)
	}
	if free == 0 {
		m.note("the disk of %s is full, so there is no disk tier", path)
	}
	m.Disk.Path = path
	figures{m.Disk.figures(), &m.Disk.Sources}.fill((&Disk{Free: free}).figures(), Measured)
	return nil
}

func (m *Machine) note(format string, args ...any) {
	m.Notes = append(m.Notes, fmt.Sprintf(format, args...))
}
