package machine

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"spillway/dtype"
	"spillway/units"
)

// calibration is what was measured, of the host or of a disk, and all that the cache
// keeps. Zero rates could not be measured; Notes say why.
type calibration struct {
	Key       string     `json:"key"`
	At        time.Time  `json:"at"`
	Copy      units.Rate `json:"copy,omitempty"`
	CopyOne   units.Rate `json:"copy_one,omitempty"`
	Update    units.Rate `json:"update,omitempty"`
	Compute   Compute    `json:"compute,omitzero"`
	Tables    Tables     `json:"tables,omitempty"` // of the processor
	DiskRead  units.Rate `json:"disk_read,omitempty"`
	DiskWrite units.Rate `json:"disk_write,omitempty"`
	Notes     []string   `json:"notes,omitempty"`
}

// calibrate fills the rates of host and disk. It never fails: rates can be assumed, with a
// note. It returns the tables of the processor.
func (m *Machine) calibrate(o Options) Tables {
	c := m.calibrated(o, m.hostKey(o), m.measureHost)
	m.Calibrated = c.At
	host := Host{Copy: c.Copy, CopyOne: c.CopyOne, Update: c.Update, Compute: c.Compute}
	figures{m.Host.figures(), &m.Host.Sources}.fill(host.figures(), Measured)
	switch {
	case m.Disk.Free == 0:
	case !o.MeasureDisk:
		m.note("the rates of the disk were not measured: it was not asked for")
	default:
		d := m.calibrated(o, m.key(o, "disk "+o.DiskPath), m.measureDisk)
		figures{m.Disk.figures(), &m.Disk.Sources}.fill((&Disk{Read: d.DiskRead, Write: d.DiskWrite}).figures(), Measured)
	}
	return c.Tables
}

// calibrated is what the cache keeps under a key, or what is measured, and kept there where
// measure says so.
func (m *Machine) calibrated(o Options, key string, measure func(*calibration, Options) (keep bool)) calibration {
	c, err := o.load(key)
	if err != nil {
		if !errors.Is(err, errNotCached) {
			m.note("the kept rates could not be used, so they are measured again: %v", err)
		}
		c = calibration{Key: key, At: o.Now().UTC().Truncate(time.Second)}
		if measure(&c, o) {
			if err := o.store(c); err != nil {
				m.note("the measured rates could not be kept for next time: %v", err)
			}
		}
	}
	m.Notes = append(m.Notes, c.Notes...)
	return c
}

// key names everything that rates depend on, and what was asked for.
func (m *Machine) key(o Options, asked ...string) string {
	return strings.Join(append([]string{m.Name, m.Host.CPU, strconv.Itoa(m.Host.Cores) + " cores", o.Version}, asked...), "|")
}

func (m *Machine) hostKey(o Options) string {
	var asked []string
	for _, part := range []struct {
		name string
		is   bool
	}{{"arithmetic", o.Arithmetic != nil}, {"updates alone", o.Updates != nil}, {"tables", o.Tables != nil}} {
		if part.is {
			asked = append(asked, part.name)
		}
	}
	return m.key(o, asked...)
}

func (m *Machine) measureHost(c *calibration, o Options) bool {
	n := min(o.CopyBytes, m.Host.Usable/8)
	o.Report("copies")
	c.CopyOne = copyRate(n, 1)
	c.Copy = max(copyRate(n, m.Host.Cores), c.CopyOne)
	o.Report("products")
	c.measureArithmetic(o.Arithmetic)
	o.Report("updates")
	c.measureUpdates(o.Updates)
	c.measureTables(o.Tables, o.Report)
	return true
}

func (c *calibration) measureArithmetic(measure func(dtype.Type) (units.Flops, error)) {
	if measure == nil {
		c.note("the rate of matrix products was not measured: no CPU backend was given")
		return
	}
	for _, t := range []struct {
		dtype dtype.Type
		rate  *units.Flops
	}{{dtype.F32, &c.Compute.F32}, {dtype.BF16, &c.Compute.BF16}} {
		rate, err := measure(t.dtype)
		if err != nil {
			c.note("the rate of %v matrix products could not be measured: %v", t.dtype, err)
			continue
		}
		*t.rate = rate
	}
}

func (c *calibration) measureUpdates(measure func() (units.Rate, error)) {
	if measure == nil {
		return // taken from the copy rate, and marked so
	}
	rate, err := measure()
	if err != nil {
		c.note("the rate of updates could not be measured: %v", err)
		return
	}
	c.Update = rate
}

func (c *calibration) measureTables(measure func(dtype.Type) (ByVariant, error), tell func(string)) {
	if measure == nil {
		return
	}
	c.Tables = Tables{}
	for _, t := range []dtype.Type{dtype.F32, dtype.BF16} {
		tell(fmt.Sprintf("calls of many sizes in %v", t))
		table, err := measure(t)
		if err != nil {
			c.note("calls of many sizes in %v could not be measured: %v", t, err)
			continue
		}
		c.Tables[t.String()] = table
	}
}

// measureDisk keeps nothing that went wrong: next time there may be room.
func (m *Machine) measureDisk(c *calibration, o Options) bool {
	if m.Disk.Free < 2*o.DiskBytes {
		c.note("the rates of the disk were not measured: %v are free, the file to measure with is %v", m.Disk.Free, o.DiskBytes)
		return false
	}
	o.Report("the disk")
	r, err := diskRates(m.Disk.Path, int64(o.DiskBytes))
	if err != nil {
		c.note("the rates of the disk could not be measured: %v", err)
		return false
	}
	if !r.direct {
		c.note("the disk knows no direct I/O: its rates are those of the page cache")
	}
	c.DiskRead, c.DiskWrite = r.read, r.write
	return true
}

func (c *calibration) note(format string, args ...any) {
	c.Notes = append(c.Notes, fmt.Sprintf(format, args...))
}

// errNoAnswer means that the cache has nothing to say, as opposed to being damaged.
var errNotCached = errors.New("nothing kept")

func (o Options) cachePath(key string) string {
	h := fnv.New64a()
	h.Write([]byte(key))
	return filepath.Join(o.CacheDir, fmt.Sprintf("machine-%016x.json", h.Sum64()))
}

func (o Options) load(key string) (calibration, error) {
	var c calibration
	if o.CacheDir == "" || o.Refresh {
		return c, errNotCached
	}
	text, err := os.ReadFile(o.cachePath(key))
	if errors.Is(err, fs.ErrNotExist) {
		return c, errNotCached
	}
	if err != nil {
		return c, err
	}
	if err := json.Unmarshal(text, &c); err != nil {
		return c, fmt.Errorf("%s: %w", o.cachePath(key), err)
	}
	if err := c.Tables.Check(); err != nil {
		return c, fmt.Errorf("%s: %w", o.cachePath(key), err)
	}
	age := o.Now().Sub(c.At)
	empty := !(c.Copy > 0 && c.CopyOne > 0) && !(c.DiskRead > 0) // neither of a host nor of a disk
	if c.Key != key || empty || o.MaxAge > 0 && (age > o.MaxAge || age < 0) {
		return c, errNotCached
	}
	return c, nil
}

// keep writes the calibration so that a reader sees the old file or the new one.
func (o Options) store(c calibration) error {
	if o.CacheDir == "" {
		return nil
	}
	text, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.CacheDir, 0o755); err != nil {
		return err
	}
	temp, err := os.CreateTemp(o.CacheDir, "machine-*.tmp")
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name()) // gone already if the rename succeeded
	_, err = temp.Write(append(text, '\n'))
	if err := errors.Join(err, temp.Close()); err != nil {
		return err
	}
	return os.Rename(temp.Name(), o.cachePath(c.Key))
}
