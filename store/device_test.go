package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"spillway/device"
	"spillway/device/devicetest"
	"spillway/internal/offheap"
	"spillway/internal/vfs"
)

// open opens a disk for a test, on the real file system unless the options say else.
func open(t testing.TB, o Options) *Disk {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	if o.Limit == 0 {
		o.Limit = 64 << 20
	}
	d, err := Open(o)
	must(t, err)
	return d
}

func must(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func alloc(t testing.TB, d device.Device, bytes int64) device.Memory {
	t.Helper()
	m, err := d.Alloc(bytes)
	must(t, err)
	return m
}

func hostAlloc(t testing.TB, d device.Device, bytes int64) device.Memory {
	t.Helper()
	m, err := d.HostAlloc(bytes)
	must(t, err)
	return m
}

func newQueue(t testing.TB, d device.Device, name string) device.Queue {
	t.Helper()
	q, err := d.Queue(name)
	must(t, err)
	return q
}

func part(m device.Memory, offset, n int64) device.Buffer {
	return device.Buffer{Memory: m, Offset: offset, Bytes: n}
}

func fill(rng *rand.Rand, p []byte) {
	for len(p) > 0 {
		n := copy(p, binary.LittleEndian.AppendUint64(nil, rng.Uint64()))
		p = p[n:]
	}
}

func left(t *testing.T, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	must(t, err)
	hidden, err := filepath.Glob(filepath.Join(dir, ".*"))
	must(t, err)
	return append(names, hidden...)
}

// The promises of every device that do not need kernels.
func TestConformance(t *testing.T) {
	devicetest.Run(t, func(t *testing.T) device.Device { return open(t, Options{}) }, devicetest.Options{})
}

// regions of all kinds, with gaps, in an arena; the bytes that are read at first.
func mixed(t *testing.T, rng *rand.Rand) (regions []Region, content []byte) {
	file := filepath.Join(t.TempDir(), "model.safetensors")
	raw := make([]byte, 2<<20+777)
	fill(rng, raw)
	must(t, os.WriteFile(file, raw, 0o600))
	content = make([]byte, 5<<20+123)
	for at := int64(0); ; {
		r := Region{Kind: []Kind{Journaled, Scratch, InPlace}[rng.IntN(3)], Offset: at, Bytes: rng.Int64N(600_000)}
		if rng.IntN(8) == 0 {
			r.Bytes = rng.Int64N(3)
		}
		if at+r.Bytes > int64(len(content)) {
			return regions, content
		}
		if r.Kind == InPlace {
			r.File, r.At = file, rng.Int64N(int64(len(raw))-r.Bytes+1)
			copy(content[at:at+r.Bytes], raw[r.At:])
		}
		regions = append(regions, r)
		at += r.Bytes
		if rng.IntN(2) == 0 {
			at += rng.Int64N(3000)
		}
	}
}

// writable says whether all of a range may be written.
func writable(regions []Region, at, n int64) bool {
	for _, r := range regions {
		if (r.Kind == Journaled || r.Kind == Scratch) && at >= r.Offset && at+n <= r.Offset+r.Bytes {
			return true
		}
	}
	return n == 0
}

// Random copies in, out and within the disk, at any offset and size and through two
// queues, give what slices give.
func TestRandomCopiesAgainstSlices(t *testing.T) {
	for seed := range uint64(3) {
		rng := rand.New(rand.NewPCG(seed, 9))
		regions, model := mixed(t, rng)
		d := open(t, Options{Regions: regions})
		size := int64(len(model))
		arena, host := alloc(t, d, size), hostAlloc(t, d, size)
		queues := []device.Queue{newQueue(t, d, "in"), newQueue(t, d, "out")}
		hostModel := make([]byte, size)
		events := []device.Event{event(t, d), event(t, d)}
		for range 300 {
			n := rng.Int64N([]int64{10, 5000, 200_000, 3 << 20}[rng.IntN(4)])
			a, b := rng.Int64N(size-n+1), rng.Int64N(size-n+1)
			i := rng.IntN(2)
			q := queues[i]
			must(t, q.Wait(events[1-i])) // one order over both queues
			switch kind := rng.IntN(4); {
			case kind == 0 && writable(regions, a, n):
				must(t, q.Copy(part(arena, a, n), part(host, b, n)))
				copy(model[a:a+n], hostModel[b:])
			case kind == 1 && writable(regions, a, n) && (a+n <= b || b+n <= a):
				must(t, q.Copy(part(arena, a, n), part(arena, b, n)))
				copy(model[a:a+n], model[b:])
			case kind == 2: // new bytes to write
				must(t, queues[0].Sync(), queues[1].Sync())
				fill(rng, host.Host()[a:a+n])
				copy(hostModel[a:], host.Host()[a:a+n])
			default:
				must(t, q.Copy(part(host, b, n), part(arena, a, n)))
				copy(hostModel[b:b+n], model[a:])
			}
			must(t, q.Record(events[i]))
		}
		must(t, queues[0].Sync(), queues[1].Sync())
		if !bytes.Equal(host.Host(), hostModel) {
			t.Errorf("seed %d: host memory differs", seed)
		}
		must(t, queues[0].Copy(part(host, 0, size), part(arena, 0, size)), queues[0].Sync())
		if !bytes.Equal(host.Host(), model) {
			t.Errorf("seed %d: the disk differs", seed)
		}
		must(t, queues[0].Close(), queues[1].Close(), arena.Free(), host.Free(), d.Close())
		if names := left(t, d.dir); len(names) > 0 {
			t.Errorf("left behind: %v", names)
		}
	}
}

func event(t testing.TB, d device.Device) device.Event {
	t.Helper()
	e, err := d.Event()
	must(t, err)
	return e
}

// What may not be written is refused with the file's name, and once.
func TestReadOnly(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	file := filepath.Join(t.TempDir(), "weights")
	must(t, os.WriteFile(file, make([]byte, 1000), 0o600))
	d := open(t, Options{Regions: []Region{{Kind: InPlace, Offset: 0, Bytes: 500, File: file, At: 7}, {Kind: Journaled, Offset: 600, Bytes: 400}}})
	arena, host, q := alloc(t, d, 1000), hostAlloc(t, d, 1000), newQueue(t, d, "out")
	fill(rng, host.Host())
	for _, at := range []int64{0, 499, 500, 550} {
		must(t, q.Copy(part(arena, at, 1), part(host, 0, 1)))
		if err := q.Sync(); err == nil || at < 500 && !bytes.Contains([]byte(err.Error()), []byte(file)) {
			t.Errorf("writing at %d gives %v", at, err)
		}
		must(t, q.Sync())
	}
	must(t, q.Copy(part(arena, 600, 400), part(host, 0, 400)), q.Sync())
	must(t, q.Close(), arena.Free(), host.Free(), d.Close())
}

// Regions that cannot be are refused before anything starts.
func TestBadRegions(t *testing.T) {
	file := filepath.Join(t.TempDir(), "weights")
	must(t, os.WriteFile(file, make([]byte, 1000), 0o600))
	for _, regions := range [][]Region{
		{{Kind: "half", Bytes: 10}},
		{{Kind: Journaled, Bytes: 2000}},
		{{Kind: Journaled, Offset: -1, Bytes: 10}},
		{{Kind: Journaled, Bytes: -1}},
		{{Kind: Journaled, Bytes: 10}, {Kind: Scratch, Offset: 9, Bytes: 10}},
		{{Kind: Journaled, Bytes: 10, File: file}},
		{{Kind: Journaled, Bytes: 10, At: 10}},
		{{Kind: InPlace, Bytes: 10}},
		{{Kind: InPlace, Bytes: 10, File: file, At: 991}},
		{{Kind: InPlace, Bytes: 10, File: file, At: -1}},
		{{Kind: InPlace, Bytes: 10, File: file + "x"}},
	} {
		d := open(t, Options{Regions: regions})
		if _, err := d.Alloc(1000); err == nil {
			t.Errorf("%+v was accepted", regions)
		}
		must(t, d.Close())
		if names := left(t, d.dir); len(names) > 0 {
			t.Errorf("left behind: %v", names)
		}
	}
}

// A full disk is an error with both numbers, before anything is written.
func TestFullDisk(t *testing.T) {
	disk := vfs.NewMemory(1 << 20)
	d := open(t, Options{Dir: "/d", Disk: disk, Limit: 1 << 30})
	_, err := d.Alloc(700 << 10)
	var space *vfs.SpaceError
	if !errors.As(err, &space) || space.Needed != 2*11*pageBytes || space.Free != 1<<20 {
		t.Errorf("got %v", err)
	}
	full := open(t, Options{Dir: "/e", Disk: &vfs.Faults{Disk: disk, Capacity: 1 << 18}})
	if _, err := full.Alloc(200 << 10); !errors.As(err, &space) {
		t.Errorf("a disk that is full when space is reserved gives %v", err)
	}
	must(t, d.Close(), full.Close())
	for _, dir := range []string{"/d", "/e"} {
		names, err := disk.List(dir)
		if must(t, err); len(names) > 0 {
			t.Errorf("left behind: %v", names)
		}
	}
}

// What lies in place takes nothing of the limit and no space.
func TestLimitCountsWhatTheDiskHolds(t *testing.T) {
	file := filepath.Join(t.TempDir(), "weights")
	must(t, os.WriteFile(file, make([]byte, 1<<20), 0o600))
	regions := []Region{{Kind: InPlace, Bytes: 1 << 20, File: file}, {Kind: Journaled, Offset: 1 << 20, Bytes: 1000}}
	for _, limit := range []int64{999, 1000} {
		d := open(t, Options{Regions: regions, Limit: limit})
		m, err := d.Alloc(1<<20 + 1000)
		var full *device.OutOfMemoryError
		if limit == 999 && (!errors.As(err, &full) || full.Asked != 1000) || limit == 1000 && err != nil {
			t.Errorf("with a limit of %d: %v", limit, err)
		}
		if err == nil {
			must(t, m.Free())
		}
		must(t, d.Close())
	}
}

// Two disks in one folder would spoil each other's files.
func TestOneDiskAtATime(t *testing.T) {
	d := open(t, Options{})
	if _, err := Open(Options{Dir: d.dir}); !errors.Is(err, vfs.ErrLocked) {
		t.Errorf("a second disk in the same folder gives %v", err)
	}
	must(t, d.Close())
	again := open(t, Options{Dir: d.dir})
	must(t, again.Close(), again.Close())
}

// Host memory is what HostBytes says, and all of it is given back.
func TestHostMemoryIsBounded(t *testing.T) {
	before := offheap.Mapped()
	d := open(t, Options{})
	arena := alloc(t, d, 10<<20)
	q := newQueue(t, d, "in")
	if got, mapped := d.HostBytes(), offheap.Mapped()-before; mapped != poolBytes || got != poolBytes+160*10 {
		t.Errorf("HostBytes %d with %d mapped, a pool is %d", got, mapped, poolBytes)
	}
	must(t, q.Close(), arena.Free())
	newQueue(t, d, "left open")
	must(t, d.Close())
	if now := offheap.Mapped(); now != before {
		t.Errorf("%d bytes are still mapped", now-before)
	}
	if _, err := d.Alloc(1); err == nil {
		t.Error("a closed disk gives memory")
	}
	if _, err := d.Queue("late"); err == nil {
		t.Error("a closed disk gives a queue")
	}
}

// Copies allocate nothing on the Go heap.
func TestNothingIsAllocated(t *testing.T) {
	d := open(t, Options{})
	arena, host, q := alloc(t, d, 3<<20), hostAlloc(t, d, 3<<20), newQueue(t, d, "in")
	round := func() {
		must(t, q.Copy(part(arena, 5, 2<<20), part(host, 7, 2<<20)))
		must(t, q.Copy(part(arena, 0, 2<<20), part(host, 0, 2<<20)))
		must(t, q.Copy(part(host, 0, 2<<20), part(arena, 100, 2<<20)))
		must(t, q.Sync())
	}
	round()
	n := testing.AllocsPerRun(5, round)
	for try := 0; n >= 1 && try < 20; try++ { // the runtime may have started threads meanwhile
		n = testing.AllocsPerRun(5, round)
	}
	if n >= 1 {
		t.Errorf("%v allocations for three copies", n)
	}
	must(t, q.Close(), arena.Free(), host.Free(), d.Close())
}
