package sim

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"spillway/machine"
)

// order is a copy that was asked for.
type order struct {
	way          int
	begin, alone time.Duration
}

// watched is when the last copy of each way ends on a link that is watched tick by tick:
// each way carries its copies one after the other, at full rate when it is alone.
func watched(orders []order, duplex machine.Duplex) (ends [2]time.Duration) {
	const tick = 100 * time.Nanosecond
	var left [2][]order
	for _, o := range orders {
		left[o.way] = append(left[o.way], o)
	}
	for at := time.Duration(0); len(left[0])+len(left[1]) > 0; at += tick {
		busy := [2]bool{}
		for way, list := range left {
			busy[way] = len(list) > 0 && list[0].begin <= at
		}
		for way := range left {
			if !busy[way] {
				continue
			}
			rate := 1.0
			if busy[1-way] {
				rate = float64(duplex)
			}
			if left[way][0].alone -= time.Duration(rate * float64(tick)); left[way][0].alone <= 0 {
				left[way], ends[way] = left[way][1:], at+tick
			}
		}
	}
	return ends
}

// Copies end when they do on a link that is watched tick by tick.
func TestLinkIsWhatIsWatched(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 1))
	for _, duplex := range []machine.Duplex{machine.HalfDuplex, 0.6, 0.92, machine.FullDuplex} {
		l, orders := newLink(duplex), []order(nil)
		var now [2]time.Duration
		var queues [2]virtualQueue
		for range 60 {
			o := order{way: r.IntN(2), alone: time.Duration(1+r.IntN(400)) * time.Microsecond}
			o.begin = now[o.way] + time.Duration(r.IntN(300))*time.Microsecond
			now[o.way] = o.begin // whether the one before has ended or not
			orders = append(orders, o)
			q := &queues[o.way]
			q.now = max(q.now, o.begin)
			l.copy(q, o.way, o.alone)
		}
		for way, want := range watched(orders, duplex) {
			if got := queues[way].now; math.Abs(float64(got-want)) > float64(10*time.Microsecond) {
				t.Errorf("duplex %v: way %d is free at %v, watched tick by tick at %v", duplex, way, got, want)
			}
		}
	}
}

// Copies both ways take what the sum of both rates allows, and each way gets its half.
func TestLinkCarriesBothWays(t *testing.T) {
	for duplex, want := range map[machine.Duplex]float64{machine.HalfDuplex: 1, 0.75: 1.5, machine.FullDuplex: 2} {
		l := newLink(duplex)
		var queues [2]virtualQueue
		const copies = 1000
		for range copies {
			for way := range queues {
				l.copy(&queues[way], way, time.Millisecond)
			}
		}
		for _, q := range queues {
			got := 2 * copies * time.Millisecond.Seconds() / q.now.Seconds()
			if math.Abs(got-want) > 0.01*want {
				t.Errorf("at a duplex of %v both ways carry %.3f of what one does, want %v", duplex, got, want)
			}
		}
	}
}

// Who waits for a copy that another one delays, waits until it has ended.
func TestDelayedCopiesEndLater(t *testing.T) {
	l := newLink(0.75)
	var in, out, compute virtualQueue
	var landed virtualEvent
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
