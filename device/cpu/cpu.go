// Package cpu is the CPU as a device: memory from arenas outside the Go heap,
// queues that are goroutines, and kernels that run on all cores.
//
// Open it as "cpu", or with a configuration: "cpu:threads=4,limit=8GiB". Several
// devices may be open at once, each with memory and workers of its own. "cpu:avx2" computes
// with the kernels of CPUs without AVX-512, see kernelSet.
//
// A kernel is prepared once and its scratch memory comes with the launch, so that nothing is
// allocated while a program runs. Results have the same bits with any number of threads (see
// package kernel), those of updates also on any CPU.
//
// The file of a kernel registers it (Register); a program may add kernels for ops of its own.
package cpu

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"spillway/device"
	"spillway/device/cpu/kernel"
	"spillway/internal/cores"
	"spillway/op"
	"spillway/units"
)

func init() { device.Register("cpu", driver{}) }

// alignment of buffers: a cache line.
const alignment = 64

// unknownMemory stands for the memory of a machine whose size is not known.
const unknownMemory = 1 << 46

type driver struct{}

// Open reads the configuration: threads=N, limit=SIZE, link=RATE and the name of a set of kernels, separated by
// commas.
func (driver) Open(config string, _ device.Options) (device.Device, error) {
	o, err := parse(config)
	if err != nil {
		return nil, fmt.Errorf("configuration %q of the cpu: %w", config, err)
	}
	if err := kernels.join(o.Kernels); err != nil {
		return nil, fmt.Errorf("configuration %q of the cpu: %w", config, err)
	}
	return open(o), nil
}

// Options of a device. The zero value means all cores and all memory.
type Options struct {
	Threads int   // workers; 0 for as many as Go runs at once
	Limit   int64 // most bytes Alloc gives in total; 0 for all of the machine
	// Link slows every copy down to this rate, as between a GPU and its host; 0 for
	// none. Queues are slowed each by itself: both directions run at once.
	Link units.Rate
	// Kernels names the set of kernels that was asked for, see kernel.Paths; "" for the best of this CPU. Only devices that are
	// opened by name ask for one.
	Kernels string
}

func parse(config string) (o Options, err error) {
	for _, part := range strings.FieldsFunc(config, func(r rune) bool { return r == ',' }) {
		key, value, assigned := strings.Cut(part, "=")
		switch {
		case slices.Contains(kernel.PathNames, part) && (o.Kernels == "" || o.Kernels == part):
			o.Kernels = part
			continue
		case slices.Contains(kernel.PathNames, part):
			return o, fmt.Errorf("kernels of %s and of %s; name one of them", o.Kernels, part)
		case !assigned:
			return o, unknownOption(part)
		}
		switch key {
		case "threads":
			if o.Threads, err = strconv.Atoi(value); err != nil || o.Threads < 1 {
				return o, fmt.Errorf("threads %q, want a number from 1", value)
			}
		case "limit":
			limit, err := units.ParseBytes(value)
			if err != nil {
				return o, err
			}
			o.Limit = int64(limit)
		case "link":
			if o.Link, err = units.ParseRate(value); err != nil {
				return o, err
			}
		default:
			return o, unknownOption(key)
		}
	}
	return o, nil
}

func unknownOption(name string) error {
	return fmt.Errorf("unknown option %q; known are threads=N, limit=SIZE, link=RATE and the kernels %s", name, strings.Join(kernel.PathNames, ", "))
}

// Device is the CPU and a share of its memory.
type Device struct {
	limit int64
	link  units.Rate
	pool  *kernel.Pool

	mu     sync.Mutex
	held   int64 // bytes Alloc has given
	peak   int64 // that were ever held
	live   map[*memory]bool
	queues map[*queue]bool
}

// Open opens a device that computes with the kernels in use.
func Open(o Options) *Device {
	kernels.count()
	return open(o)
}

func open(o Options) *Device {
	if o.Threads == 0 {
		o.Threads = cores.Count()
	}
	if o.Limit == 0 {
		o.Limit = physicalMemory()
	}
	return &Device{
		limit: o.Limit, link: o.Link, pool: kernel.NewPool(o.Threads),
		live: map[*memory]bool{}, queues: map[*queue]bool{},
	}
}

// Decompresses implements device.Decompressor.
func (d *Device) Decompresses() bool { return kernel.HasCompressed() }

// Info describes the device.
func (d *Device) Info() device.Info {
	return device.Info{Name: "cpu", Limit: d.limit, Alignment: alignment, OnHost: true}
}

// Kernel prepares a call.
func (d *Device) Kernel(call op.Call) (device.Kernel, error) {
	if err := call.Check(); err != nil {
		return nil, fmt.Errorf("cpu: a kernel for %v: %w", call.Kind, err)
	}
	p, reason := prepare(call, d.pool.Workers())
	if reason != "" {
		return nil, &device.NoKernelError{Device: "cpu", Call: call, Reason: reason}
	}
	return &preparedKernel{device: d, call: call, program: p, ids: idsBefore(call)}, nil
}

// Close ends queues and workers and frees what is left. The error names memory that
// was not freed.
func (d *Device) Close() error {
	d.mu.Lock()
	queues, live := d.queues, d.live
	d.queues, d.live = nil, nil
	d.mu.Unlock()
	for q := range queues {
		q.End()
	}
	d.pool.Close()
	if live != nil { // closed once
		kernels.leave()
	}
	var errs []error
	kinds := map[bool]string{false: "device", true: "host"}
	for m := range live {
		errs = append(errs, fmt.Errorf("cpu: %d bytes of %s memory: %w", m.size, kinds[m.host], device.ErrLeak), m.region.Free())
	}
	return errors.Join(errs...)
}
