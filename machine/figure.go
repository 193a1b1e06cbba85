package machine

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"spillway/units"
)

// figure is one number of a description.
type figure struct {
	key   string // in the grammar, in Sources and in Describe
	field field  // what holds it
	help  string // what it means, for Grammar
}

// field reads and writes a field of some type, like a flag.Value.
type field interface {
	parse(text string) error // refuses what no hardware has
	exact() string           // parse(exact()) gives the same value
	String() string          // for people
	example() string         // for Grammar
	zero() bool
	copyFrom(field)
}

// figures are the figures of one part of a machine, with their sources.
type figures struct {
	sources *Sources
	list    []figure
}

// fill takes the figures of the same part of another machine, where those are not zero and
// this one has no source for them yet.
func (f figures) fill(from figures, s Source) {
	for i, g := range f.list {
		if _, known := (*f.sources)[g.key]; !known && !from.list[i].field.zero() {
			g.field.copyFrom(from.list[i].field)
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
	for _, g := range f.list {
		if g.key == key {
			return g.field
		}
	}
	return nil
}

// keys lists the keys, for errors.
func (f figures) keys() string {
	names := make([]string, len(f.list))
	for i, g := range f.list {
		names[i] = g.key
	}
	return strings.Join(names, ", ")
}

type (
	size  units.Bytes
	rate  units.Rate
	flops units.Flops
	span  time.Duration
	count int
)

// minSize catches a size whose unit was forgotten, as in "gpu:24"; maxSize keeps
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
func (*size) example() string    { return "24GiB" }
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
func (*rate) example() string    { return "25GB/s" }
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
func (*flops) example() string    { return "165TFLOPS" }
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
func (*span) example() string    { return "5us" }
func (s *span) copyFrom(f field) { *s = *f.(*span) }

func (c *count) parse(text string) error {
	v, err := strconv.Atoi(text)
	if err != nil || v < 1 || v > 1<<16 {
		return fmt.Errorf("count %q; write an integer from 1 to %d", text, 1<<16)
	}
	*c = count(v)
	return nil
}

func (c *count) exact() string    { return strconv.Itoa(int(*c)) }
func (c *count) String() string   { return c.exact() }
func (c *count) zero() bool       { return *c == 0 }
func (*count) example() string    { return "16" }
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
