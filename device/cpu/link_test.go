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
	each := rate.Time(size)
	// copies gives when the link is done with so many at the earliest and at the latest, by when each was queued.
	copies := func(n int) (earliest, latest time.Duration) {
		for range n {
			before := hostqueue.Now()
			if err := q.Copy(to, from); err != nil {
				t.Fatal(err)
			}
			earliest, latest = max(earliest, before)+each, max(latest, hostqueue.Now())+each
		}
		return earliest, latest
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
	earliest, latest := copies(8)
	if done := end(); done < earliest || done > latest {
		t.Errorf("8 copies were done at %v, from %v to %v is right", done, earliest, latest)
	}
	time.Sleep(2 * each) // nothing to do: that time is lost to the link
	earliest, latest = copies(2)
	if done := end(); done < earliest || done > latest {
		t.Errorf("after a pause copies were done at %v, from %v to %v is right", done, earliest, latest)
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
