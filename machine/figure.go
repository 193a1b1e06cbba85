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

// notation is how values of a type are written.
type notation[T comparable] struct {
	sample string
	parse  func(string) (T, error) // refuses what no hardware has
	exact  func(T) string          // that parse reads as the same value
}

// written is a field in a notation.
type written[T comparable] struct {
	*notation[T]
	at *T
}

func (w written[T]) parse(text string) error {
	v, err := w.notation.parse(text)
	if err == nil {
		*w.at = v
	}
	return err
}

func (w written[T]) exact() string    { return w.notation.exact(*w.at) }
func (w written[T]) String() string   { return fmt.Sprint(*w.at) }
func (w written[T]) example() string  { return w.sample }
func (w written[T]) zero() bool       { return *w.at == *new(T) }
func (w written[T]) copyFrom(f field) { *w.at = *f.(written[T]).at }

func size(at *units.Bytes) field            { return written[units.Bytes]{&sizes, at} }
func rate(at *units.Rate) field             { return written[units.Rate]{&rates, at} }
func flops(at *units.Flops) field           { return written[units.Flops]{&arithmetic, at} }
func span(at *time.Duration) field          { return written[time.Duration]{&spans, at} }
func count(at *int) field                   { return written[int]{&counts, at} }
func bidirectional(at *Bidirectional) field { return written[Bidirectional]{&shares, at} }

// minSize catches a size whose unit was forgotten, as in "gpu:24"; maxSize keeps
// sums of sizes from overflowing.
const (
	minSize = 4 * units.KiB
	maxSize = 4096 * units.TiB
)

var sizes = notation[units.Bytes]{"24GiB", func(text string) (units.Bytes, error) {
	v, err := units.ParseBytes(text)
	switch {
	case err != nil:
		return 0, err
	case v < minSize:
		return 0, fmt.Errorf("size %q is %d bytes, less than %v: write the unit, as in 24GiB", text, int64(v), minSize)
	case v > maxSize:
		return 0, fmt.Errorf("size %q is more than %v, larger than any one memory", text, maxSize)
	}
	return v, nil
}, func(n units.Bytes) string {
	for _, u := range []struct {
		unit units.Bytes
		name string
	}{{units.TiB, "TiB"}, {units.GiB, "GiB"}, {units.MiB, "MiB"}, {units.KiB, "KiB"}} {
		if n%u.unit == 0 {
			return strconv.FormatInt(int64(n/u.unit), 10) + u.name
		}
	}
	return strconv.FormatInt(int64(n), 10) + "B"
}}

var rates = notation[units.Rate]{"25GB/s", func(text string) (units.Rate, error) {
	v, err := units.ParseRate(text)
	if err == nil && (v < 1 || v > 1e18) {
		err = fmt.Errorf("rate %q is outside 1 B/s to 1e18 B/s; write it like 55GB/s", text)
	}
	return v, err
}, func(v units.Rate) string { return decimal(float64(v), "B/s") }}

var arithmetic = notation[units.Flops]{"165TFLOPS", func(text string) (units.Flops, error) {
	v, err := units.ParseFlops(text)
	if err == nil && (v < 1 || v > 1e21) {
		err = fmt.Errorf("arithmetic rate %q is outside 1 to 1e21 FLOP/s; write it like 165TFLOPS", text)
	}
	return v, err
}, func(v units.Flops) string { return decimal(float64(v), "FLOPS") }}

var spans = notation[time.Duration]{"5us", func(text string) (time.Duration, error) {
	v, err := time.ParseDuration(text)
	if err != nil || v < 0 || v > time.Minute {
		return 0, fmt.Errorf("time %q; write it like 5us", text)
	}
	return v, nil
}, time.Duration.String}

var counts = notation[int]{"16", func(text string) (int, error) {
	v, err := strconv.Atoi(text)
	if err != nil || v < 1 || v > 1<<16 {
		return 0, fmt.Errorf("count %q; write an integer from 1 to %d", text, 1<<16)
	}
	return v, nil
}, strconv.Itoa}

var shares = notation[Bidirectional]{"92%", func(text string) (Bidirectional, error) {
	number, percent := strings.CutSuffix(text, "%")
	v, err := strconv.ParseFloat(number, 64)
	if percent {
		v /= 100
	}
	if err != nil {
		return 0, fmt.Errorf("%q is no share; write it like 92%%", text)
	}
	return Bidirectional(v), Bidirectional(v).check()
}, func(v Bidirectional) string { return strconv.FormatFloat(float64(v), 'g', -1, 64) }}

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
