// Package units holds quantities people type and read: bytes and rates.
//
// Bytes are printed in binary units (GiB) because memory is sold and limited in
// them; rates in decimal units (GB/s) because links and disks are. Both kinds of
// unit are understood on input.
package units

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Bytes is an amount of memory or storage.
type Bytes int64

// Binary units.
const (
	KiB Bytes = 1 << 10
	MiB Bytes = 1 << 20
	GiB Bytes = 1 << 30
	TiB Bytes = 1 << 40
)

// Rate is a bandwidth in bytes per second.
type Rate float64

// Flops is an arithmetic rate in floating-point operations per second.
type Flops float64

// suffixes maps a lower-case unit to its size in bytes.
var suffixes = map[string]float64{
	"": 1, "b": 1,
	"k": 1e3, "kb": 1e3, "kib": 1 << 10,
	"m": 1e6, "mb": 1e6, "mib": 1 << 20,
	"g": 1e9, "gb": 1e9, "gib": 1 << 30,
	"t": 1e12, "tb": 1e12, "tib": 1 << 40,
}

// ParseBytes reads "24GiB", "80 GB", "512mib" or a bare number of bytes.
func ParseBytes(s string) (Bytes, error) {
	v, err := parse(s)
	if err != nil {
		return 0, fmt.Errorf("size %q: %w; write it like 24GiB or 80GB", s, err)
	}
	if v > math.MaxInt64/2 {
		return 0, fmt.Errorf("size %q is larger than any memory", s)
	}
	return Bytes(math.Round(v)), nil
}

// ParseRate reads "55GB/s"; the "/s" may be left out.
func ParseRate(s string) (Rate, error) {
	v, err := parse(strings.TrimSuffix(strings.TrimSpace(s), "/s"))
	if err != nil {
		return 0, fmt.Errorf("rate %q: %w; write it like 55GB/s", s, err)
	}
	if v <= 0 {
		return 0, fmt.Errorf("rate %q must be above zero", s)
	}
	return Rate(v), nil
}

// ParseFlops reads "312TFLOPS", "312TFLOP/s" or "312T".
func ParseFlops(s string) (Flops, error) {
	t := strings.ToLower(strings.TrimSpace(s))
	for _, tail := range []string{"flop/s", "flops"} {
		t = strings.TrimSuffix(t, tail)
	}
	unit := 1.0
	if n := len(t); n > 0 {
		if u, ok := map[byte]float64{'k': 1e3, 'm': 1e6, 'g': 1e9, 't': 1e12, 'p': 1e15}[t[n-1]]; ok {
			unit, t = u, t[:n-1]
		}
	}
	v, err := strconv.ParseFloat(strings.TrimSpace(t), 64)
	if err != nil || !(v > 0) || math.IsInf(v, 0) {
		return 0, fmt.Errorf("arithmetic rate %q; write it like 312TFLOPS", s)
	}
	return Flops(v * unit), nil
}

func parse(s string) (float64, error) {
	s = strings.TrimSpace(s)
	cut := len(s)
	for cut > 0 && !strings.ContainsRune("0123456789.", rune(s[cut-1])) {
		cut--
	}
	unit, ok := suffixes[strings.ToLower(strings.TrimSpace(s[cut:]))]
	if !ok {
		return 0, fmt.Errorf("unknown unit %q", strings.TrimSpace(s[cut:]))
	}
	v, err := strconv.ParseFloat(s[:cut], 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a number", s[:cut])
	}
	if v < 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return 0, fmt.Errorf("%v is not an amount", v)
	}
	return v * unit, nil
}

// String prints three significant digits in a binary unit: "17.2 GiB".
func (b Bytes) String() string {
	if b < 0 {
		return "-" + (-b).String()
	}
	for _, u := range []struct {
		size Bytes
		name string
	}{{TiB, "TiB"}, {GiB, "GiB"}, {MiB, "MiB"}, {KiB, "KiB"}} {
		if b >= u.size {
			return threeDigits(float64(b)/float64(u.size)) + " " + u.name
		}
	}
	return fmt.Sprintf("%d B", int64(b))
}

// String prints "55.5 GB/s".
func (r Rate) String() string { return decimal(float64(r)) + "B/s" }

// Time is how long n bytes take at this rate.
func (r Rate) Time(n Bytes) time.Duration {
	if r <= 0 {
		return 0
	}
	return time.Duration(float64(n) / float64(r) * float64(time.Second))
}

// String prints "790 TFLOP/s".
func (f Flops) String() string { return decimal(float64(f)) + "FLOP/s" }

// Count prints a large number as people say it: "8.03 B", "218 M".
func Count(n int64) string {
	for _, u := range []struct {
		size float64
		name string
	}{{1e12, " T"}, {1e9, " B"}, {1e6, " M"}, {1e3, " K"}} {
		if float64(n) >= u.size {
			return threeDigits(float64(n)/u.size) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}

// Seconds prints a time with three digits and the unit that suits: "7.27 s", "35.1 ms", "2 h 5 min".
func Seconds(s float64) string {
	switch {
	case s >= 3600:
		return fmt.Sprintf("%d h %d min", int(s)/3600, int(s)/60%60)
	case s >= 120:
		return fmt.Sprintf("%d min %d s", int(s)/60, int(s)%60)
	case s >= 1:
		return threeDigits(s) + " s"
	case s >= 1e-3:
		return threeDigits(s*1e3) + " ms"
	}
	return threeDigits(s*1e6) + " µs"
}

func decimal(v float64) string {
	for _, u := range []struct {
		size float64
		name string
	}{{1e15, "P"}, {1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if v >= u.size {
			return threeDigits(v/u.size) + " " + u.name
		}
	}
	return threeDigits(v) + " "
}

// threeDigits prints three significant digits without an exponent.
func threeDigits(v float64) string {
	switch {
	case v >= 99.95:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 9.995:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}
