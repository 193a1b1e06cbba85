package cuda

import (
	"errors"
	"slices"
	"testing"

	"spillway/device"
)

// Few bytes of page-locked memory are copied by a kernel where kernels run, there and back, and in a graph too: copies queue
// behind those of weights. Others are copied by the copy engine.
func TestCopiedByAKernel(t *testing.T) {
	r := newRig(t, Options{})
	in, err := r.d.Queue("in")
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	const large = mostByKernel + 16
	host, err := r.d.HostAlloc(large)
	if err != nil {
		t.Fatal(err)
	}
	defer host.Free()
	gpu, err := r.d.Alloc(large)
	if err != nil {
		t.Fatal(err)
	}
	defer gpu.Free()
	part := func(m device.Memory, offset, bytes int64) device.Buffer {
		return device.Buffer{Memory: m, Offset: offset, Bytes: bytes}
	}
	last := func(q device.Queue, dst, src device.Buffer) string {
		t.Helper()
		n := len(r.log)
		if err := q.Copy(dst, src); err != nil {
			t.Fatal(err)
		}
		log := r.since(n)
		return log[len(log)-1]
	}
	there, back := uint64(gpu.(*memory).at), uint64(host.(*memory).at)
	for _, c := range []struct {
		name     string
		q        device.Queue
		dst, src device.Buffer
		want     string
		slots    []uint64
	}{
		{"to the GPU", r.q, part(gpu, 0, 64), part(host, 32, 64), "Launch", []uint64{there, back + 32, 64}},
		{"to the host", r.q, part(host, 0, 4), part(gpu, 16, 4), "Launch", []uint64{back, there + 16, 4}},
		{"no whole pieces", r.q, part(gpu, 0, 516), part(host, 0, 516), "Launch", []uint64{there, back, 516}},
		{"the most", r.q, part(gpu, 0, mostByKernel), part(host, 0, mostByKernel), "Launch", []uint64{there, back, mostByKernel}},
		{"more", r.q, part(gpu, 0, large), part(host, 0, large), "Copy", nil},
		{"from within a piece", r.q, part(gpu, 0, 16), part(host, 4, 16), "Copy", nil},
		{"within the GPU", r.q, part(gpu, 0, 16), part(gpu, 32, 16), "Copy", nil},
		{"where no kernels run", in, part(gpu, 0, 64), part(host, 0, 64), "Copy", nil},
	} {
		if got := last(c.q, c.dst, c.src); got != c.want || c.slots != nil && !slices.Equal(r.slots[:3], c.slots) {
			t.Errorf("%s: %s with %v, want %s with %v", c.name, got, r.slots[:3], c.want, c.slots)
		}
	}
	n := len(r.log)
	run, err := r.d.Capture([]device.Queue{r.q, in}, func() error { return r.q.Copy(part(gpu, 0, 64), part(host, 0, 64)) })
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	if log := r.since(n); slices.Contains(log, "Copy") || slices.Contains(log, "LoadModule") || !slices.Contains(log, "Launch") {
		t.Errorf("in a graph: %v", log)
	}
	r.d.gpu.reachesHost = false
	if got := last(r.q, part(gpu, 0, 64), part(host, 0, 64)); got != "Copy" {
		t.Errorf("where kernels do not reach the host: %s", got)
	}
}

// On the GPU: what kernels copy there and back is what was there, to the last byte, and nothing behind it is written.
func TestSmallCopies(t *testing.T) {
	d := openGPU(t, Options{})
	defer d.Close()
	const size = mostByKernel + 64
	host, err := d.HostAlloc(2 * size)
	if err != nil {
		t.Fatal(err)
	}
	defer host.Free()
	gpu, err := d.Alloc(size)
	if err != nil {
		t.Fatal(err)
	}
	defer gpu.Free()
	q, err := d.Queue(computeQueue)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	for _, bytes := range []int64{1, 4, 15, 16, 20, 516, 4095, 4096, 65535, mostByKernel} {
		from, to := host.Host()[:size], host.Host()[size:]
		for i := range from {
			from[i], to[i] = byte(i*7+i>>8), 0xee
		}
		there, back := device.Buffer{Memory: gpu, Offset: 16, Bytes: bytes}, device.Buffer{Memory: host, Offset: size, Bytes: bytes}
		issue := func() error {
			return errors.Join(q.Copy(there, device.Buffer{Memory: host, Bytes: bytes}), q.Copy(back, there))
		}
		if err := errors.Join(issue(), q.Sync()); err != nil {
			t.Fatal(err)
		}
		check := func(how string) {
			t.Helper()
			for i, b := range to {
				if want := byte(i*7 + i>>8); int64(i) < bytes && b != want || int64(i) >= bytes && b != 0xee {
					t.Fatalf("%d bytes, %s: byte %d is %#x", bytes, how, i, b)
				}
			}
		}
		check("issued")
		g, err := d.Capture([]device.Queue{q}, issue)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 { // a replay reads what is there then
			for i := range bytes {
				from[i] ^= 0x55
				to[i] = 0
			}
			if err := errors.Join(g.Launch(), q.Sync()); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(from[:bytes], to[:bytes]) {
				t.Errorf("%d bytes, repeated: other bytes came back", bytes)
			}
		}
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	}
}
