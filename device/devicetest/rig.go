package devicetest

import (
	"fmt"

	"spillway/device"
)

// rig is a device with a queue and two memories of one size, on the host and on
// the device: what most checks need. Its methods end the check at the first error
// (see try), like those of testing.T.
type rig struct {
	device.Device
	q     device.Queue
	host  device.Memory
	mem   device.Memory
	bytes int            // of each memory
	owned []func() error // frees what the rig made
}

// failure ends a check from inside a rig.
type failure struct{ error }

// try runs a check on a rig and frees what the rig made.
func try(d device.Device, bytes int, f func(r *rig)) (err error) {
	r := &rig{Device: d, bytes: bytes}
	defer func() {
		switch p := recover().(type) {
		case nil:
		case failure:
			err = p.error
		default:
			err = fmt.Errorf("panic: %v", p)
		}
		for i := len(r.owned) - 1; i >= 0; i-- {
			if late := r.owned[i](); late != nil && err == nil {
				err = fmt.Errorf("freeing: %w", late)
			}
		}
	}()
	r.host, r.mem, r.q = r.hostAlloc(bytes), r.alloc(bytes), r.queue("compute")
	f(r)
	return nil
}

func (r *rig) must(err error) {
	if err != nil {
		panic(failure{err})
	}
}

func (r *rig) fail(format string, args ...any) { r.must(fmt.Errorf(format, args...)) }

func (r *rig) alloc(bytes int) device.Memory {
	m, err := r.Alloc(int64(bytes))
	r.must(err)
	r.owned = append(r.owned, m.Free)
	return m
}

func (r *rig) hostAlloc(bytes int) device.Memory {
	m, err := r.HostAlloc(int64(bytes))
	r.must(err)
	r.owned = append(r.owned, m.Free)
	return m
}

func (r *rig) queue(name string) device.Queue {
	q, err := r.Queue(name)
	r.must(err)
	r.owned = append(r.owned, q.Close)
	return q
}

func (r *rig) event() device.Event {
	e, err := r.Event()
	r.must(err)
	return e
}

// upload copies bytes to the start of a device memory, and waits.
func (r *rig) upload(m device.Memory, b []byte) {
	copy(r.host.Host(), b)
	r.must(r.q.Copy(part(m, 0, len(b)), part(r.host, 0, len(b))))
	r.must(r.q.Sync())
}

// download copies the start of a device memory back, and waits.
func (r *rig) download(m device.Memory, n int) []byte {
	host := r.host.Host()[:n]
	for i := range host {
		host[i] = 0x5a // so that a copy that did nothing shows
	}
	r.must(r.q.Copy(part(r.host, 0, n), part(m, 0, n)))
	r.must(r.q.Sync())
	return append([]byte(nil), host...)
}

func part(m device.Memory, offset, n int) device.Buffer {
	return device.Buffer{Memory: m, Offset: int64(offset), Bytes: int64(n)}
}

// pattern is bytes that differ from place to place and from seed to seed.
func pattern(n, seed int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte((i*131 + i>>8*17 + seed*58) >> 1)
	}
	return b
}

// same ends the check where bytes differ.
func (r *rig) same(what string, got, want []byte) {
	for i := range want {
		if got[i] != want[i] {
			r.fail("%s: byte %d of %d is %#02x, want %#02x", what, i, len(want), got[i], want[i])
		}
	}
}
