package store

import (
	"encoding/binary"
	"math"
	"testing"

	"spillway/device"
	"spillway/device/cpu"
	"spillway/dtype"
	"spillway/op"
	"spillway/shape"
)

// Blocks stream from the disk to the CPU, are doubled there, and stream back,
// through two slots: queues of the disk wait for events of the CPU and the
// other way round, and nobody else keeps them in order.
func TestStreamThroughTheCPU(t *testing.T) {
	const n, blocks, slots, rounds = 30_000, 7, 2, 5
	const bytes = 4 * n
	disk, proc := open(t, Options{}), cpu.Open(cpu.Options{Threads: 2})
	call, err := op.Make(op.Scale, op.Attr{Scale: 2}, op.Type{DType: dtype.F32, Shape: shape.Of(n)})
	must(t, err)
	double, err := proc.Kernel(call)
	must(t, err)

	home, host := alloc(t, disk, blocks*bytes), hostAlloc(t, disk, blocks*bytes)
	in, out, compute := newQueue(t, disk, "in"), newQueue(t, disk, "out"), newQueue(t, proc, "compute")
	for b := range blocks {
		for i := range n {
			binary.LittleEndian.PutUint32(host.Host()[b*bytes+4*i:], math.Float32bits(float32(b*n+i)))
		}
	}
	must(t, out.Copy(part(home, 0, blocks*bytes), part(host, 0, blocks*bytes)), out.Sync())

	x, y := alloc(t, proc, slots*bytes), alloc(t, proc, slots*bytes)
	var arrived, done, gone [slots]device.Event // of the disk, of the CPU, of the disk
	for s := range slots {
		arrived[s], done[s], gone[s] = event(t, disk), event(t, proc), event(t, disk)
	}
	for range rounds {
		for b := range int64(blocks) {
			s := b % slots
			at, slot := part(home, b*bytes, bytes), part(x, s*bytes, bytes)
			result := part(y, s*bytes, bytes)
			must(t, in.Wait(done[s]), in.Wait(gone[s]), in.Copy(slot, at), in.Record(arrived[s]))
			must(t, compute.Wait(arrived[s]), compute.Wait(gone[s]), compute.Launch(double, &device.Launch{Buffers: []device.Buffer{slot, result}, Args: &op.Args{}}), compute.Record(done[s]))
			must(t, out.Wait(done[s]), out.Copy(at, result), out.Record(gone[s]))
		}
		must(t, in.Wait(gone[0]), in.Wait(gone[1])) // the next round reads what this one wrote
	}
	must(t, compute.Sync(), in.Sync(), out.Sync())
	if arrived[0].Time() > done[0].Time() || done[0].Time() > gone[0].Time() {
		t.Errorf("a block came at %v, was done at %v and gone at %v", arrived[0].Time(), done[0].Time(), gone[0].Time())
	}
	must(t, in.Copy(part(host, 0, blocks*bytes), part(home, 0, blocks*bytes)), in.Sync())
	for i := range blocks * n {
		if got := math.Float32frombits(binary.LittleEndian.Uint32(host.Host()[4*i:])); got != float32(i)*(1<<rounds) {
			t.Fatalf("number %d is %v, want %v", i, got, float32(i)*(1<<rounds))
		}
	}
	must(t, in.Close(), out.Close(), compute.Close(), x.Free(), y.Free(), home.Free(), host.Free(), disk.Close(), proc.Close())
}
