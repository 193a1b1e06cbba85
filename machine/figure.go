package machine

import (
	"fmt"
	"strconv"
	"time"

	"spillway/units"
)

// figure is one number of a description: its key in the grammar, in Sources and
// in Describe, and the field that holds it.
type figure struct {
	key   string
	field field
}

// field reads and writes a field of some type, like a flag.Value.
type field interface {
	parse(text string) error // refuses what no hardware has
	exact() string           // parse(exact()) gives the same value
	String() string          // for people
	zero() bool
	copyFrom(field)
}

// The figures of each part, in the order in which they are written and described.
func (d *Device) figures() []figure {
	return []figure{
		{"memory", (*size)(&d.Memory)}, {"usable", (*size)(&d.Usable)},
		{"in", (*rate)(&d.Link.In)}, {"out", (*rate)(&d.Link.Out)}, {"duplex", (*bidirectional)(&d.Link.Bidirectional)}, {"latency", (*span)(&d.Link.Latency)},
		{"traffic", (*rate)(&d.Link.HostBandwidth)},
		{"bf16", (*flops)(&d.Compute.BF16)}, {"f16", (*flops)(&d.Compute.F16)}, {"tf32", (*flops)(&d.Compute.TF32)},
		{"f32", (*flops)(&d.Compute.F32)}, {"f8", (*flops)(&d.Compute.F8)},
		{"bf16-lasting", (*flops)(&d.Sustained.BF16)}, {"f16-lasting", (*flops)(&d.Sustained.F16)},
		{"tf32-lasting", (*flops)(&d.Sustained.TF32)}, {"f32-lasting", (*flops)(&d.Sustained.F32)},
		{"bandwidth", (*rate)(&d.Bandwidth)}, {"launch", (*span)(&d.Launch)}, {"kernel", (*span)(&d.Kernel)},
	}
}

func (h *Host) figures() []figure {
	return []figure{
		{"memory", (*size)(&h.Memory)}, {"limit", (*size)(&h.Limit)}, {"usable", (*size)(&h.Usable)},
		{"cores", (*count)(&h.Cores)}, {"copy", (*rate)(&h.Copy)}, {"copy-one", (*rate)(&h.CopyOne)}, {"update", (*rate)(&h.Update)},
		{"f32", (*flops)(&h.Compute.F32)}, {"bf16", (*flops)(&h.Compute.BF16)}, {"f16", (*flops)(&h.Compute.F16)},
	}
}

func (d *Disk) figures() []figure {
	return []figure{{"free", (*size)(&d.Free)}, {"read", (*rate)(&d.Read)}, {"write", (*rate)(&d.Write)}}
}

// figures are the figures of one part with the sources of that part.
type figures struct {
	all     []figure
	sources *Sources
}

// fill takes over the figures of the same part of another machine, where they are
// not zero and this one has none yet.
func (f figures) fill(from []figure, s Source) {
	for i, g := range f.all {
		if _, known := (*f.sources)[g.key]; !known && !from[i].field.zero() {
			g.field.copyFrom(from[i].field)
			f.set(g.key, s)
		}
	}
}

func (f figures) set(key string, s Source) {
	if *f.sources == nil {
		*f.sources = Sources{}
	}
	(*f.sources)[key] = s
}

// find is the field of a key, nil if the part has none.
func (f figures) find(key string) field {
	for _, g := range f.all {
		if g.key == key {
			return g.field
		}
	}
	return nil
}

type (
	size  units.Bytes
	rate  units.Rate
	flops units.Flops
	span  time.Duration
	count int
)

// leastSize catches a size whose unit was forgotten, as in "gpu:24"; mostSize keeps
// sums of sizes from overflowing.
const (
	minSize = 4 * units.KiB
	maxSize = 4096 * units.TiB
)

func (s *size) parse(text string) error {
	v, err := units.ParseBytes(text)
	if err != nil {
		return err
	}
	if v < minSize {
		return fmt.Errorf("size %q is %d bytes, less than %v: write the unit, as in 24GiB", text, int64(v), minSize)
	}
	if v > maxSize {
		return fmt.Errorf("size %q is more than %v, larger than any one memory", text, maxSize)
	}
	*s = size(v)
	return nil
}

func (s *size) exact() string {
	n := units.Bytes(*s)
	for _, u := range []struct {
		unit units.Bytes
		name string
	}{{units.TiB, "TiB"}, {units.GiB, "GiB"}, {units.MiB, "MiB"}, {units.KiB, "KiB"}} {
		if n%u.unit == 0 {
			return strconv.FormatInt(int64(n/u.unit), 10) + u.name
		}
	}
	return strconv.FormatInt(int64(n), 10) + "B"
}

func (s *size) String() string   { return units.Bytes(*s).String() }
func (s *size) zero() bool       { return *s == 0 }
func (s *size) copyFrom(f field) { *s = *f.(*size) }

func (r *rate) parse(text string) error {
	v, err := units.ParseRate(text)
	if err != nil {
		return err
	}
	if v < 1 || v > 1e18 {
		return fmt.Errorf("rate %q is outside 1 B/s to 1e18 B/s; write it like 55GB/s", text)
	}
	*r = rate(v)
	return nil
}

func (r *rate) exact() string    { return decimal(float64(*r), "B/s") }
func (r *rate) String() string   { return units.Rate(*r).String() }
func (r *rate) zero() bool       { return *r == 0 }
func (r *rate) copyFrom(f field) { *r = *f.(*rate) }

func (x *flops) parse(text string) error {
	v, err := units.ParseFlops(text)
	if err != nil {
		return err
	}
	if v < 1 || v > 1e21 {
		return fmt.Errorf("arithmetic rate %q is outside 1 to 1e21 FLOP/s; write it like 165TFLOPS", text)
	}
	*x = flops(v)
	return nil
}

func (x *flops) exact() string    { return decimal(float64(*x), "FLOPS") }
func (x *flops) String() string   { return units.Flops(*x).String() }
func (x *flops) zero() bool       { return *x == 0 }
func (x *flops) copyFrom(f field) { *x = *f.(*flops) }

func (s *span) parse(text string) error {
	v, err := time.ParseDuration(text)
	if err != nil || v < 0 || v > time.Minute {
		return fmt.Errorf("time %q; write it like 5us", text)
	}
	*s = span(v)
	return nil
}

func (s *span) exact() string    { return time.Duration(*s).String() }
func (s *span) String() string   { return s.exact() }
func (s *span) zero() bool       { return *s == 0 }
func (s *span) copyFrom(f field) { *s = *f.(*span) }

func (c *count) parse(text string) error {
	v, err := strconv.Atoi(text)
	if err != nil || v < 1 || v > 1<<16 {
		return fmt.Errorf("count %q; write a whole number from 1 to %d", text, 1<<16)
	}
	*c = count(v)
	return nil
}

func (c *count) exact() string    { return strconv.Itoa(int(*c)) }
func (c *count) String() string   { return c.exact() }
func (c *count) zero() bool       { return *c == 0 }
func (c *count) copyFrom(f field) { *c = *f.(*count) }

// decimal writes v with the largest decimal unit that loses no bit of it.
func decimal(v float64, unit string) string {
	for _, p := range []struct {
		size float64
		name string
	}{{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		q := v / p.size
		if q >= 1 && q*p.size == v && q < 1e15 {
			return strconv.FormatFloat(q, 'f', -1, 64) + p.name + unit
		}
	}
	return strconv.FormatFloat(v, 'g', -1, 64) + unit
}
