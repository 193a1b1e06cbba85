package cpu

import (
	"testing"
	"time"

	"spillway/device"
	"spillway/device/hostqueue"
	"spillway/units"
)

// Copies over a link end when the link would have passed them, one behind the other from
// the first on, however late the goroutine is woken in between; and never earlier. One
// that waits for an event begins with it.
func TestLinkHasItsOwnClock(t *testing.T) {
	const size, rate = 1 << 20, units.Rate(200e6)
	d := Open(Options{Threads: 1, Link: rate})
	defer d.Close()
	mem, err := d.Alloc(2 * size)
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Free()
	opened, err := d.Queue("in")
	if err != nil {
		t.Fatal(err)
	}
	q := opened.(*queue)
	from, to := device.Buffer{Memory: mem, Bytes: size}, device.Buffer{Memory: mem, Offset: size, Bytes: size}
	copies := func(n int) (first, queued time.Duration) {
		first = hostqueue.Now()
		for i := range n {
			if err := q.Copy(to, from); err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				queued = hostqueue.Now()
			}
		}
		return first, queued
	}
	end := func() time.Duration {
		t.Helper()
		if err := q.Sync(); err != nil {
			t.Fatal(err)
		}
		if now := hostqueue.Now(); now < q.busy {
			t.Errorf("copies were done at %v, the link is busy until %v", now, q.busy)
		}
		return q.busy
	}
	each := rate.Time(size)
	before, after := copies(8)
	if begun := end() - 8*each; begun < before || begun > after {
		t.Errorf("8 copies began at %v, they were queued from %v to %v on", begun, before, after)
	}
	time.Sleep(2 * each) // nothing to do: that time is lost to the link
	before, after = copies(2)
	if begun := end() - 2*each; begun < before || begun > after {
		t.Errorf("after a pause copies began at %v, they were queued from %v to %v on", begun, before, after)
	}
	happens := hostqueue.NewEvent()
	other, err := d.Queue("compute")
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Record(happens); err != nil {
		t.Fatal(err)
	}
	if err := q.Wait(happens); err != nil {
		t.Fatal(err)
	}
	copies(1)
	if begun := end() - each; begun < happens.Time() {
		t.Errorf("a copy began at %v, what it waits for happened at %v", begun, happens.Time())
	}
}
