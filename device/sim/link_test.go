package sim

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"spillway/device"
	"spillway/dtype"
	"spillway/machine"
	"spillway/op"
	"spillway/shape"
	"spillway/units"
)

// order is a copy that was asked for.
type order struct {
	party        int
	begin, alone time.Duration
}

// watched is when the last of each party ends where everything is watched tick by tick: each
// party carries one thing after the other, at full rate when it is alone.
func watched(orders []order, rates func(busy [parties]bool) [parties]float64) (ends [parties]time.Duration) {
	const tick = 100 * time.Nanosecond
	var left [parties][]order
	for _, o := range orders {
		left[o.party] = append(left[o.party], o)
	}
	for at := time.Duration(0); len(left[0])+len(left[1])+len(left[2]) > 0; at += tick {
		busy := [parties]bool{}
		for party, list := range left {
			busy[party] = len(list) > 0 && list[0].begin <= at
		}
		for party, rate := range rates(busy) {
			if !busy[party] {
				continue
			}
			if left[party][0].alone -= time.Duration(rate * float64(tick)); left[party][0].alone <= 0 {
				left[party], ends[party] = left[party][1:], at+tick
			}
		}
	}
	return ends
}

// halves are the speeds on a link whose directions have a share of theirs while both are busy.
func halves(share machine.Bidirectional) func([parties]bool) [parties]float64 {
	return func(busy [parties]bool) [parties]float64 {
		if busy[inward] && busy[outward] {
			return [parties]float64{float64(share), float64(share), 1}
		}
		return [parties]float64{1, 1, 1}
	}
}

// ordered gives random orders to some parties of a link and returns when they end.
func ordered(r *rand.Rand, l *link, count int) (orders []order, ends [parties]time.Duration) {
	var now [parties]time.Duration
	var queues [parties]virtualQueue
	for range 60 {
		o := order{party: r.IntN(count), alone: time.Duration(1+r.IntN(400)) * time.Microsecond}
		o.begin = now[o.party] + time.Duration(r.IntN(300))*time.Microsecond
		now[o.party] = o.begin // whether the one before has ended or not
		orders = append(orders, o)
		q := &queues[o.party]
		q.now = max(q.now, o.begin)
		if o.party == hostCPU {
			l.carry(q, o.party, o.alone)
		} else {
			l.copy(q, o.party, o.alone)
		}
	}
	for party := range ends {
		ends[party] = queues[party].now
	}
	return orders, ends
}

// Copies end when they do on a link that is watched tick by tick.
func TestLinkIsWhatIsWatched(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 1))
	for _, share := range []machine.Bidirectional{machine.HalfDuplex, 0.6, 0.92, machine.FullDuplex} {
		l := newLink(share)
		orders, ends := ordered(r, &l, 2)
		for party, want := range watched(orders, halves(share)) {
			if got := ends[party]; math.Abs(float64(got-want)) > float64(10*time.Microsecond) {
				t.Errorf("share %v: direction %d is free at %v, watched tick by tick at %v", share, party, got, want)
			}
		}
	}
}

// Copies and updates end when they do where all are watched tick by tick, but for what
// those delay that come later in the plan and sooner in time.
func TestSharedMemoryIsWhatIsWatched(t *testing.T) {
	const in, out, updates, all = 55, 54, 140, 165
	rates := func(busy [parties]bool) [parties]float64 {
		speeds := halves(0.9)(busy)
		if !busy[hostCPU] {
			return speeds
		}
		asked, rest := float64(updates), float64(all)
		if busy[inward] {
			asked += in * speeds[inward]
		}
		if busy[outward] {
			rest -= out * speeds[outward]
		}
		slow := min(1, rest/asked)
		return [parties]float64{speeds[inward] * slow, speeds[outward], slow}
	}
	r := rand.New(rand.NewPCG(5, 1))
	for range 20 {
		l := newLink(0.9)
		l.share(&channel{}, hostMemory{rate: all, in: in, out: out, updates: updates})
		orders, ends := ordered(r, &l, 3)
		for party, want := range watched(orders, rates) {
			if got := ends[party]; math.Abs(float64(got-want)) > 0.02*float64(want) {
				t.Errorf("party %d is free at %v, watched tick by tick at %v", party, got, want)
			}
		}
	}
}

// An H200 and 16 cores, of which each could copy 55 GB/s each party and update 140 GB/s alone,
// carried 165 GB/s together; these are the rates of each that were seen with one another.
func TestSharesOfMemoryAreThoseMeasured(t *testing.T) {
	l := newLink(0.9)
	alone := [parties]float64{inward: 55, outward: 54.5, hostCPU: 138}
	l.share(&channel{}, hostMemory{rate: 165, in: alone[inward], out: alone[outward], updates: alone[hostCPU]})
	for busy, seen := range map[int][parties]float64{
		1<<hostCPU | 1<<inward:              {inward: 42.4, hostCPU: 115},
		1<<hostCPU | 1<<outward:             {outward: 53, hostCPU: 99.6},
		1<<hostCPU | 1<<inward | 1<<outward: {inward: 31.9, outward: 49.4, hostCPU: 84.8},
	} {
		for party, want := range seen {
			if got := alone[party] * l.speeds[busy][party]; want > 0 && math.Abs(got-want) > 0.12*want {
				t.Errorf("parties %03b: party %d has %.1f GB/s, %.1f were seen", busy, party, got, want)
			}
		}
	}
}

// Copies both ways take what the sum of both rates allows, and each party gets its half.
func TestLinkCarriesBothWays(t *testing.T) {
	for share, want := range map[machine.Bidirectional]float64{machine.HalfDuplex: 1, 0.75: 1.5, machine.FullDuplex: 2} {
		l := newLink(share)
		var queues [2]virtualQueue
		const copies = 1000
		for range copies {
			for party := range queues {
				l.copy(&queues[party], party, time.Millisecond)
			}
		}
		for _, q := range queues {
			got := 2 * copies * time.Millisecond.Seconds() / q.now.Seconds()
			if math.Abs(got-want) > 0.01*want {
				t.Errorf("with a share of %v both directions carry %.3f of what one does, want %v", share, got, want)
			}
		}
	}
}

// Who waits for a copy that another one delays, waits until it has ended.
func TestDelayedCopiesEndLater(t *testing.T) {
	l := newLink(0.75)
	v := NewVirtual(machine.Device{}, dtype.F32, 0, 1)
	in, out, compute := virtualQueue{v: v}, virtualQueue{v: v}, virtualQueue{v: v}
	landed := virtualEvent{v: v}
	l.copy(&in, inward, 3*time.Millisecond)
	if err := in.Record(&landed); err != nil {
		t.Fatal(err)
	}
	l.copy(&out, outward, 3*time.Millisecond)
	if err := compute.Wait(&landed); err != nil {
		t.Fatal(err)
	}
	for name, q := range map[string]virtualQueue{"in": in, "out": out, "compute": compute} {
		if want := 4 * time.Millisecond; q.now != want {
			t.Errorf("%s is at %v, want %v", name, q.now, want)
		}
	}
	if in.busy != in.now {
		t.Errorf("the delayed queue was busy for %v of %v", in.busy, in.now)
	}
}

// A kernel of the CPU and a copy to a GPU that begin together both take as long as the
// host's memory takes for both; with memory for all, or a GPU whose CPU is idle, each
// takes its own time.
func TestCPUSharesHostMemoryWithGPU(t *testing.T) {
	const bytes = 40 << 30
	call, err := op.Make(op.Scale, op.Attr{Scale: 2}, op.Type{DType: dtype.F32, Shape: shape.Of(bytes / 8)}) // reads and writes
	if err != nil {
		t.Fatal(err)
	}
	alone := units.Rate(100e9).Time(bytes)
	for bandwidth, want := range map[units.Rate]time.Duration{0: alone, 200e9: alone, 150e9: alone * 4 / 3, 50e9: alone * 4} {
		gpu, host := NewVirtual(machine.Device{Link: machine.Link{In: 100e9, Out: 100e9, HostBandwidth: bandwidth}}, dtype.F32, 0, 256), NewVirtual(machine.Device{Bandwidth: 100e9}, dtype.F32, 0, 256)
		host.ShareHostMemory([]*Virtual{gpu})
		in, _ := gpu.Queue("in")
		compute, _ := host.Queue("compute")
		on, _ := gpu.Alloc(bytes)
		from, _ := gpu.HostAlloc(bytes)
		k, err := host.Kernel(call)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(in.Copy(device.Buffer{Memory: on, Bytes: bytes}, device.Buffer{Memory: from, Bytes: bytes}), compute.Launch(k, nil), in.Sync(), compute.Sync()); err != nil {
			t.Fatal(err)
		}
		for name, v := range map[string]*Virtual{"copy": gpu, "kernel": host} {
			if got := v.WaitedUntil(); math.Abs(float64(got-want)) > 1e-3*float64(want) {
				t.Errorf("memory of %v: the %s took %v, want %v", bandwidth, name, got, want)
			}
		}
	}
}

// A copy of a CPU takes a core from its kernels, and leaves them the others; of a CPU with one core both have half of it. Memory that
// carries less than both ask for slows both.
func TestCopiesTakeCores(t *testing.T) {
	const bytes = 10 << 30
	call, err := op.Make(op.Scale, op.Attr{Scale: 2}, op.Type{DType: dtype.F32, Shape: shape.Of(bytes / 8)}) // reads and writes
	if err != nil {
		t.Fatal(err)
	}
	alone := units.Rate(100e9).Time(bytes)
	for _, want := range []struct {
		cores        int
		memory       units.Rate
		copy, kernel time.Duration
	}{
		{0, 0, alone, alone},
		{1, 0, 2 * alone, 2 * alone},
		{2, 0, alone, alone * 3 / 2}, // half of it while the copy goes on
		{4, 0, alone, alone * 5 / 4},
		{2, 250e9, alone, alone * 3 / 2},
		{2, 200e9, alone * 5 / 4, alone * 7 / 4}, // they ask for 250, so each has four fifths; half of the kernel comes after the copy
	} {
		cores := want.cores
		cpu := NewVirtual(machine.Device{Kind: machine.CPU, Bandwidth: 100e9, Link: machine.Link{In: 100e9, Out: 100e9, Cores: cores, HostBandwidth: want.memory}}, dtype.F32, 0, 256)
		in, _ := cpu.Queue("in")
		compute, _ := cpu.Queue("compute")
		on, _ := cpu.Alloc(bytes)
		from, _ := cpu.HostAlloc(bytes)
		k, err := cpu.Kernel(call)
		if err != nil {
			t.Fatal(err)
		}
		copied, computed := &virtualEvent{v: cpu}, &virtualEvent{v: cpu}
		if err := errors.Join(in.Copy(device.Buffer{Memory: on, Bytes: bytes}, device.Buffer{Memory: from, Bytes: bytes}), in.Record(copied), compute.Launch(k, nil), compute.Record(computed)); err != nil {
			t.Fatal(err)
		}
		for _, e := range []struct {
			name      string
			got, want time.Duration
		}{{"copy", copied.at, want.copy}, {"kernel", computed.at, want.kernel}} {
			if math.Abs(float64(e.got-e.want)) > 1e-3*float64(e.want) {
				t.Errorf("%d cores, memory of %v: the %s took %v, want %v", cores, want.memory, e.name, e.got, e.want)
			}
		}
	}
}
