package devicetest

import (
	"errors"
	"fmt"
	"sync"

	"spillway/device"
)

// memoryChecks are the promises about memory and copies.
var memoryChecks = []check{
	{name: "info", run: checkInfo},
	{name: "copies of all sizes and offsets", bytes: 1 << 10, onRig: checkCopies},
	{name: "copies within the device", bytes: 1 << 12, onRig: checkDeviceCopies},
	{name: "large copy", bytes: 5<<20 + 7, onRig: checkLargeCopy},
	{name: "out of memory", run: checkOutOfMemory},
	{name: "the whole limit can be had", run: checkWholeLimit},
	{name: "sizes that cannot be", run: checkBadSizes},
	{name: "freed twice", run: checkFreedTwice},
	{name: "leak of device memory", run: checkLeak, closes: true},
	{name: "leak of host memory", run: checkHostLeak, closes: true},
	{name: "several goroutines", run: checkGoroutines},
}

func checkInfo(d device.Device, _ Options) error {
	i := d.Info()
	if i.Name == "" || i.Alignment < 1 || i.Alignment&(i.Alignment-1) != 0 || i.Limit < 0 || i.Overhead < 0 {
		return fmt.Errorf("info %+v: want a name, an alignment that is a power of two, no negative sizes", i)
	}
	return nil
}

// checkCopies moves ranges of every length and offset around the sizes at which
// copies change their way, in and out, and looks at what lies around them.
func checkCopies(r *rig) {
	size := r.bytes
	if r.host.Host() == nil || int64(len(r.host.Host())) != r.host.Size() || r.mem.Size() != int64(size) {
		r.fail("host memory of %d bytes is %d bytes, device memory %d", size, len(r.host.Host()), r.mem.Size())
	}
	other := r.hostAlloc(size)
	for _, n := range []int{0, 1, 2, 3, 4, 7, 8, 15, 16, 31, 33, 63, 64, 65, 127, 255, 513} {
		for _, at := range []int{0, 1, 2, 3, 4, 5, 8, 12, 31, 64} {
			what := fmt.Sprintf("%d bytes to offset %d", n, at)
			want, put := pattern(size, 1), pattern(size, 2)
			r.upload(r.mem, want)
			copy(other.Host(), put)
			r.must(r.q.Copy(part(r.mem, at, n), part(other, at/2, n)))
			copy(want[at:at+n], put[at/2:])
			r.same(what, r.download(r.mem, size), want)

			back := pattern(size, 3)
			copy(other.Host(), back)
			r.must(r.q.Copy(part(other, at/2, n), part(r.mem, at, n)))
			r.must(r.q.Sync())
			copy(back[at/2:at/2+n], want[at:])
			r.same(what+" and back", other.Host(), back)
		}
	}
}

func checkDeviceCopies(r *rig) {
	size := r.bytes
	second := r.alloc(size)
	want := pattern(size, 4)
	r.upload(r.mem, want)
	r.must(r.q.Copy(part(second, 0, size), part(r.mem, 0, size)))
	r.same("to another memory", r.download(second, size), want)
	for _, n := range []int{1, 5, 64, 1000} {
		copy(want[3000:3000+n], want[17:])
		r.must(r.q.Copy(part(r.mem, 3000, n), part(r.mem, 17, n)))
		r.same("within one memory", r.download(r.mem, size), want)
	}
}

func checkLargeCopy(r *rig) {
	size := r.bytes
	want := pattern(size, 5)
	r.upload(r.mem, want)
	r.same("5 MiB and a tail", r.download(r.mem, size), want)
}

func checkOutOfMemory(d device.Device, _ Options) error {
	limit := d.Info().Limit
	if limit == 0 {
		return fmt.Errorf("%w: the device has no limit", errSkip)
	}
	for _, held := range []int64{0, 4096} {
		var m device.Memory
		if held > 0 {
			var err error
			if m, err = d.Alloc(held); err != nil {
				return err
			}
		}
		if err := refused(d, limit-held+1, held); err != nil {
			return err
		}
		if m != nil {
			if err := m.Free(); err != nil {
				return err
			}
		}
	}
	return refused(d, limit+1, 0) // what was freed is not counted
}

// refused wants an allocation to fail with the right numbers.
func refused(d device.Device, ask, held int64) error {
	m, err := d.Alloc(ask)
	if err == nil {
		return errors.Join(fmt.Errorf("%d bytes given with %d held of %d", ask, held, d.Info().Limit), m.Free())
	}
	var full *device.OutOfMemoryError
	if !errors.As(err, &full) {
		return fmt.Errorf("%d bytes: %w, want an OutOfMemoryError", ask, err)
	}
	want := device.OutOfMemoryError{Device: d.Info().Name, Asked: ask, Allocated: held, Limit: d.Info().Limit}
	if *full != want {
		return fmt.Errorf("error holds %+v, want %+v", *full, want)
	}
	return nil
}

// checkWholeLimit takes all a device with a small limit promises, in two parts.
func checkWholeLimit(d device.Device, _ Options) error {
	limit := d.Info().Limit
	if limit == 0 || limit > 64<<20 {
		return fmt.Errorf("%w: the limit of %d bytes is too large to try", errSkip, limit)
	}
	a, err := d.Alloc(limit / 3)
	if err != nil {
		return err
	}
	b, err := d.Alloc(limit - limit/3)
	if err != nil {
		return errors.Join(fmt.Errorf("the rest of the limit: %w", err), a.Free())
	}
	return errors.Join(refused(d, 1, limit), a.Free(), b.Free())
}

func checkBadSizes(d device.Device, _ Options) error {
	for _, alloc := range []func(int64) (device.Memory, error){d.Alloc, d.HostAlloc} {
		if m, err := alloc(-1); err == nil {
			return errors.Join(errors.New("-1 bytes given"), m.Free())
		}
	}
	return nil
}

// checkFreedTwice: a second Free may be an error but counts nothing twice.
func checkFreedTwice(d device.Device, _ Options) error {
	limit := d.Info().Limit
	if limit == 0 {
		return fmt.Errorf("%w: the device has no limit to count by", errSkip)
	}
	held, err := d.Alloc(4096)
	if err != nil {
		return err
	}
	m, err := d.Alloc(8192)
	if err != nil {
		return errors.Join(err, held.Free())
	}
	if err := m.Free(); err != nil {
		return err
	}
	_ = m.Free() // either answer is right
	return errors.Join(refused(d, limit, 4096), held.Free())
}

func checkLeak(d device.Device, _ Options) error { return leak(d, d.Alloc) }

func checkHostLeak(d device.Device, _ Options) error { return leak(d, d.HostAlloc) }

func leak(d device.Device, alloc func(int64) (device.Memory, error)) error {
	if _, err := alloc(4096); err != nil {
		return errors.Join(err, d.Close())
	}
	if err := d.Close(); !errors.Is(err, device.ErrLeak) {
		return fmt.Errorf("closing with 4096 bytes not freed gives %w, want an error that is ErrLeak", err)
	}
	return nil
}

// checkGoroutines uses the device from several goroutines, each with memory and a
// queue of its own.
func checkGoroutines(d device.Device, _ Options) error {
	errs := make([]error, 4)
	var group sync.WaitGroup
	for g := range errs {
		group.Go(func() {
			for round := range 5 {
				err := try(d, 4096, func(r *rig) {
					want := pattern(4096, 10*g+round)
					r.upload(r.mem, want)
					r.same("a goroutine's own memory", r.download(r.mem, 4096), want)
				})
				errs[g] = errors.Join(errs[g], err)
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}
