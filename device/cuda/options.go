package cuda

import (
	"fmt"
	"strconv"
	"strings"

	"spillway/device"
	"spillway/units"
)

// Options of a device. The zero value is all of the first card.
type Options struct {
	Ordinal int // which card
	// Share is into how many logical devices the card is divided; 0 counts as 1.
	Share int
	Limit int64 // most bytes Alloc gives in total; 0 for all that is free
	// Host is how many bytes HostAlloc may be asked for: the card's table of their pages
	// is kept free on it.
	Host int64
	// TF32 lets products of f32 numbers round them to 10 bits of mantissa.
	TF32 bool
	// Cache is a folder for compiled kernels and for the ways products were found to
	// be fastest in; "" compiles them anew in each process, and times nothing.
	Cache string
	// SearchPaths are folders to look for libraries in before the usual ones: a
	// toolkit's or a Python environment's root, or a folder of libraries.
	SearchPaths []string
}

type opener struct{}

// Open reads the configuration: the card's number, for a share of it /N behind it, and
// limit=SIZE, tf32, cache=FOLDER, search=FOLDER:FOLDER, separated by commas.
func (opener) Open(config string) (device.Device, error) {
	o, err := parse(config)
	if err != nil {
		return nil, fmt.Errorf("configuration %q of a cuda device: %w", config, err)
	}
	return Open(o)
}

func parse(config string) (o Options, err error) {
	card, rest, _ := strings.Cut(config, ",")
	if card != "" {
		number, share, shared := strings.Cut(card, "/")
		if o.Ordinal, err = strconv.Atoi(number); err != nil || o.Ordinal < 0 {
			return o, fmt.Errorf("card %q, want a number from 0", number)
		}
		if o.Share, err = strconv.Atoi(share); shared && (err != nil || o.Share < 1) {
			return o, fmt.Errorf("share %q, want a number from 1", share)
		}
	}
	for _, part := range strings.FieldsFunc(rest, func(r rune) bool { return r == ',' }) {
		if err := o.set(part); err != nil {
			return o, err
		}
	}
	return o, nil
}

// set reads one part of a configuration.
func (o *Options) set(part string) error {
	key, value, _ := strings.Cut(part, "=")
	switch key {
	case "limit":
		limit, err := units.ParseBytes(value)
		o.Limit = int64(limit)
		return err
	case "tf32":
		o.TF32 = true
	case "cache":
		o.Cache = value
	case "search":
		o.SearchPaths = strings.Split(value, ":")
	default:
		return fmt.Errorf("unknown key %q; known are limit, tf32, cache and search", key)
	}
	return nil
}
