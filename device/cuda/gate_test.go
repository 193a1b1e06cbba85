package cuda

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"spillway/device"
	"spillway/device/hostqueue"
)

// A stream waits for a number that counts the events of other backends in the order
// they were waited for, not in the order they happen.
func TestWaitForAnotherBackend(t *testing.T) {
	r := newRig(t, Options{})
	hold := make(chan struct{})
	slow := hostqueue.New("slow", func(struct{}) error { <-hold; return nil })
	quick := hostqueue.New("quick", func(struct{}) error { return nil })
	first, second, never := hostqueue.NewEvent(), hostqueue.NewEvent(), hostqueue.NewEvent()
	err := errors.Join(slow.Put(struct{}{}), slow.Record(first), quick.Record(second), quick.Sync(),
		r.q.Wait(never), r.q.Wait(first), r.q.Wait(second))
	if err != nil {
		t.Fatal(err)
	}
	if len(r.waited) != 2 || r.waited[0] != 1 || r.waited[1] != 2 {
		t.Errorf("the stream waits for %v, an event never recorded holds nobody", r.waited)
	}
	number := r.q.(*queue).gate.number()
	time.Sleep(time.Millisecond)
	if n := atomic.LoadUint32(number); n != 0 {
		t.Errorf("%d waits passed although the first event has not happened", n)
	}
	close(hold)
	for atomic.LoadUint32(number) != 2 {
		time.Sleep(time.Millisecond)
	}
	slow.End()
	quick.End()
	if err := r.q.Wait(onlyTime{}); err == nil {
		t.Error("an event nobody can wait for was taken")
	}
}

type onlyTime struct{}

func (onlyTime) Time() time.Duration { return 0 }

// Queues of other backends wait for events of the GPU.
func TestAnotherBackendWaits(t *testing.T) {
	r := newRig(t, Options{})
	e, err := r.d.Event()
	if err != nil {
		t.Fatal(err)
	}
	q := hostqueue.New("disk", func(struct{}) error { return nil })
	defer q.End()
	if h := e.(device.HostEvent); h.Issued() != 0 {
		t.Errorf("%d records before the first", h.Issued())
	}
	from := len(r.log)
	if err := errors.Join(r.q.Record(e), q.Wait(e), q.Sync()); err != nil {
		t.Fatal(err)
	}
	synced := false
	for _, call := range r.log[from:] {
		synced = synced || call == "SyncEvent"
	}
	if h := e.(device.HostEvent); !synced || h.Issued() != 1 {
		t.Errorf("%d records, and the calls were %v", h.Issued(), r.log[from:])
	}
}
