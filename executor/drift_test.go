package executor

import (
	"testing"
	"time"

	"spillway/device"
	_ "spillway/device/cuda" // registers GPUs
	"spillway/plan"
)

// counted is an event at a time of a device's clock.
type counted time.Duration

func (c counted) Time() time.Duration                { return time.Duration(c).Round(time.Millisecond) }
func (c counted) Since(e device.Event) time.Duration { return time.Duration(c - e.(counted)) }

// A clock that gains is set right over the length of an iteration, at both ends and between.
func TestDriftIsTakenOut(t *testing.T) {
	const hour = counted(time.Hour)
	for _, took := range []time.Duration{10 * time.Millisecond, 10 * time.Second} {
		gained := took + took/20000 // 50 in a million
		c := &clock{elapses: true, begin: moment{event: hour, host: time.Second}, end: moment{event: hour + counted(gained), host: time.Second + took}}
		for _, share := range []time.Duration{0, 1, 2, 4} {
			got, want := c.at(hour+counted(gained*share/4), time.Time{}), time.Second+took*share/4
			if off := got - want; off > time.Microsecond || off < -time.Microsecond {
				t.Errorf("an iteration of %v, %d quarters into it: %v, want %v", took, share, got, want)
			}
		}
	}
}

// On a GPU, the time of an event by the clock of a trace is where the host sees it, to 20 µs, also
// after clocks had seconds to drift apart.
func TestClockOfAGPU(t *testing.T) {
	d, err := device.Open("cuda:0", device.Options{})
	if err != nil {
		t.Skip("no GPU: ", err)
	}
	defer d.Close()
	q, err := d.Queue(string(plan.Compute))
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	c, err := newClock(d, q)
	if err != nil || !c.elapses {
		t.Fatal("no clock of its own: ", err)
	}
	for _, took := range []time.Duration{5 * time.Millisecond, 3 * time.Second} {
		began := time.Now()
		if c.begin, err = c.look(d, began); err != nil {
			t.Fatal(err)
		}
		var seen []moment
		for time.Since(began) < took {
			m, err := c.look(d, began)
			if err != nil {
				t.Fatal(err)
			}
			seen = append(seen, m)
			time.Sleep(took / 100)
		}
		if c.end, err = c.look(d, began); err != nil {
			t.Fatal(err)
		}
		var worst, widest time.Duration
		for _, m := range seen {
			worst, widest = max(worst, (c.at(m.event, began)-m.host).Abs()), max(widest, m.width)
		}
		drift := c.end.event.(device.Elapser).Since(c.begin.event) - (c.end.host - c.begin.host)
		t.Logf("over %v: %d events are at most %v from where the host sees them, which it knows to %v; the clocks drifted by %v", took, len(seen), worst, widest, drift)
		if worst > 20*time.Microsecond {
			t.Errorf("over %v: %v between the clocks, at most 20 µs are allowed", took, worst)
		}
	}
}
