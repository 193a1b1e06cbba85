package hostqueue

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"spillway/device"
)

// Work of one backend's queue waits for an event of another's, both ways, over and
// over: the numbers come out in one order whatever the goroutines do.
func TestQueuesOfDifferentBackends(t *testing.T) {
	var order []int
	add := func(n int) error { order = append(order, n); return nil }
	type other struct{ n int } // another backend has other work
	a := New("a", add)
	b := New("b", func(o other) error { return add(o.n) })
	ping, pong := NewEvent(), NewEvent()
	var want []int
	for i := range 200 {
		check(t, a.Wait(pong), a.Put(2*i), a.Record(ping))
		check(t, b.Wait(ping), b.Put(other{2*i + 1}), b.Record(pong))
		want = append(want, 2*i, 2*i+1)
	}
	check(t, b.Sync())
	if !slices.Equal(order, want) {
		t.Errorf("the order is %v", order)
	}
	if ping.Time() > pong.Time() {
		t.Errorf("ping at %v, pong after it at %v", ping.Time(), pong.Time())
	}
	a.End()
	b.End()
}

// outside is an event of a backend that is no queue of this package.
type outside struct {
	awaited []uint64
	open    chan struct{}
}

func (o *outside) Time() time.Duration { return 0 }
func (o *outside) Issued() uint64      { return 7 }
func (o *outside) Await(n uint64)      { o.awaited = append(o.awaited, n); <-o.open }

// A queue waits for any event a goroutine can wait for, by the number it had when
// Wait was called, and refuses others.
func TestWaitForAnEventFromOutside(t *testing.T) {
	ran := false
	q := New("q", func(struct{}) error { ran = true; return nil })
	e := &outside{open: make(chan struct{})}
	check(t, q.Wait(e), q.Put(struct{}{}))
	close(e.open)
	check(t, q.Sync())
	if !ran || !slices.Equal(e.awaited, []uint64{7}) {
		t.Errorf("ran: %v, awaited %v", ran, e.awaited)
	}
	if q.Wait(deaf{}) == nil || q.Record(deaf{}) == nil || q.Record(e) == nil {
		t.Error("an event nobody can wait for, or of another backend, was accepted")
	}
	q.End()
}

type deaf struct{ device.Event }

// An error is reported once, work after it is skipped, records are not.
func TestErrorOnce(t *testing.T) {
	boom := errors.New("boom")
	ran := 0
	q := New("q", func(err error) error { ran++; return err })
	e := NewEvent()
	check(t, q.Put(boom), q.Put(nil), q.Record(e))
	e.Await(1)
	if err := q.Sync(); err != boom || ran != 1 {
		t.Errorf("Sync gives %v after %d runs", err, ran)
	}
	check(t, q.Put(nil), q.Sync())
	if ran != 2 {
		t.Errorf("%d runs, want 2: work after Sync runs again", ran)
	}
	q.End()
	q.End()
	if q.Put(nil) == nil || q.Sync() == nil {
		t.Error("an ended queue takes work")
	}
}

// The host waits for an event while the queue is held behind it; an error before the event
// comes out there, once.
func TestSyncTo(t *testing.T) {
	boom, held := errors.New("boom"), make(chan struct{})
	ran := 0
	q := New("q", func(f func() error) error { ran++; return f() })
	e := NewEvent()
	fine := func() error { return nil }
	check(t, q.SyncTo(e), q.Put(fine), q.Record(e), q.Put(func() error { <-held; return boom }), q.Put(fine), q.SyncTo(e))
	check(t, q.Record(e))
	close(held)
	if err := q.SyncTo(e); err != boom || ran != 2 {
		t.Errorf("SyncTo gives %v after %d runs", err, ran)
	}
	check(t, q.SyncTo(e), q.Put(fine), q.Sync())
	if q.SyncTo(deaf{}) == nil || ran != 3 {
		t.Errorf("an event of another backend was waited for, or %d runs", ran)
	}
	q.End()
}

func check(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// Work that waits in a queue is not begun once its context has ended; later work is done again.
func TestWorkIsSkippedOnceAContextEnds(t *testing.T) {
	ran, began, release := 0, make(chan struct{}), make(chan struct{})
	q := New("q", func(holds bool) error {
		if ran++; holds {
			close(began)
			<-release
		}
		return nil
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := NewEvent()
	check(t, q.Until(ctx), q.Put(true), q.Put(false), q.Put(false), q.Record(done), q.Until(nil))
	<-began
	cancel()
	close(release)
	if err := q.Sync(); !errors.Is(err, context.Canceled) || ran != 1 {
		t.Errorf("error %v, %d of 3 ran", err, ran)
	}
	done.Await(done.Issued()) // nobody waits for ever
	check(t, q.Put(false), q.Sync())
	if ran != 2 {
		t.Errorf("%d ran, want 2", ran)
	}
	q.End()
}
