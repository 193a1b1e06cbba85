package cuda

import (
	"slices"
	"testing"

	"spillway/device"
	"spillway/device/hostqueue"
)

// What the CPU computed comes to the GPU by a kernel where the stream waits for the CPU: copies queue behind
// those of weights. Large ones, and those of other streams, are copied.
func TestCopiedByAKernel(t *testing.T) {
	r := newRig(t, Options{})
	part := func(m device.Memory, bytes int64) device.Buffer { return device.Buffer{Memory: m, Bytes: bytes} }
	last := func(bytes int64) string {
		t.Helper()
		n := len(r.log)
		if err := r.q.Copy(part(r.gpu, bytes), part(r.host, bytes)); err != nil {
			t.Fatal(err)
		}
		log := r.since(n)
		return log[len(log)-1]
	}
	if got := last(64); got != "Copy" {
		t.Errorf("a stream that waits for nobody: %s", got)
	}
	cpu, done := hostqueue.New("cpu", func(struct{}) error { return nil }), hostqueue.NewEvent()
	defer cpu.End()
	if err := cpu.Record(done); err != nil {
		t.Fatal(err)
	}
	if err := r.q.Wait(done); err != nil {
		t.Fatal(err)
	}
	if got := last(64); got != "Launch" || !slices.Equal(r.slots[:3], []uint64{uint64(r.gpu.(*memory).at), uint64(r.host.(*memory).at), 4}) {
		t.Errorf("behind the CPU: %s with %v", got, r.slots[:3])
	}
	if got := last(20); got != "Copy" {
		t.Errorf("a part of 16 bytes: %s", got)
	}
}
