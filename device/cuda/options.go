package cuda

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"spillway/device"
	"spillway/device/cuda/driver"
	"spillway/units"
)

// Options of a device. The zero value is all of the first GPU.
type Options struct {
	Ordinal int // which GPU
	// Share is how many logical devices the GPU is divided into; 0 counts as 1.
	Share int
	Limit int64 // most bytes Alloc gives in total; 0 for all that is free
	// Host is how many bytes HostAlloc may be asked for: memory for the GPU's page table of
	// them is reserved.
	Host int64
	// TF32 lets matmuls and attention round f32 operands to 10 bits of fraction.
	TF32 bool
	// Ampere computes attention as on GPUs of the generations before Hopper, to compare.
	Ampere bool
	// Cache is a folder for compiled kernels and for the algorithms that were found to be
	// the fastest; "" compiles kernels anew in each process, and times no algorithms.
	Cache string
	// SearchPaths are folders to look for libraries in before the common ones: a
	// toolkit's or a Python environment's root, or a folder of libraries.
	SearchPaths []string
}

type opener struct{}

// Open reads the configuration: the GPU's number, /N behind it for a share of it, and
// limit=SIZE, tf32 and ampere separated by commas.
func (opener) Open(config string, o device.Options) (device.Device, error) {
	parsed, err := parse(config)
	if err != nil {
		return nil, fmt.Errorf("configuration %q of a cuda device: %w", config, err)
	}
	parsed.Host, parsed.Cache, parsed.SearchPaths = o.HostMemory, o.Cache, o.LibraryPaths
	d, err := Open(parsed)
	if err != nil {
		return nil, absent(err)
	}
	return d, nil
}

// absent turns the errors that mean "there is no such GPU" into device.AbsentError.
func absent(err error) error {
	var library *driver.MissingError
	var answer *driver.Error
	var none *NoGPUError
	reason := ""
	switch {
	case errors.As(err, &none) && none.GPUs > 0:
		reason = none.Error()
	case errors.As(err, &none), errors.As(err, &answer) && answer.Code == driver.NoDevice:
		reason = "no NVIDIA GPU found"
	case errors.As(err, &library) && strings.HasPrefix(library.Names[0], "libcuda."):
		reason = "no NVIDIA driver found"
	case errors.As(err, &library):
		reason = fmt.Sprintf("no %s found; %s", library.Names[0], library.How)
	default:
		return err
	}
	return &device.AbsentError{Reason: reason, Err: err}
}

func parse(config string) (o Options, err error) {
	gpu, rest, _ := strings.Cut(config, ",")
	if gpu != "" {
		number, share, shared := strings.Cut(gpu, "/")
		if o.Ordinal, err = strconv.Atoi(number); err != nil || o.Ordinal < 0 {
			return o, fmt.Errorf("GPU %q, want a number from 0", number)
		}
		if o.Share, err = strconv.Atoi(share); shared && (err != nil || o.Share < 1) {
			return o, fmt.Errorf("share %q, want a number from 1: 0/2 is one half of the first GPU", share)
		}
	}
	for _, option := range strings.FieldsFunc(rest, func(r rune) bool { return r == ',' }) {
		switch key, value, _ := strings.Cut(option, "="); key {
		case "limit":
			limit, err := units.ParseBytes(value)
			if err != nil {
				return o, err
			}
			o.Limit = int64(limit)
		case "tf32":
			o.TF32 = true
		case "ampere":
			o.Ampere = true
		default:
			return o, fmt.Errorf("unknown option %q; known are limit, tf32 and ampere", key)
		}
	}
	return o, nil
}

// TF32 says whether f32 operands are rounded.
func (d *Device) TF32() bool { return d.options.TF32 }

// SetTF32 changes whether kernels prepared from now on round f32 operands.
func (d *Device) SetTF32(on bool) { d.options.TF32 = on }
