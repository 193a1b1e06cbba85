package sim

import (
	"time"

	"spillway/machine"
)

// link is the path to the host, with a direction each way. While both are busy, each has
// only a share of its rate.
//
// Copies come in the order of the plan, and what follows from one may be planned before
// another comes that shares the link with it. The later one delays the earlier, the copies
// behind it in its queue, and whoever waits for them from then on. All in all both
// directions carry what they can.
type link struct {
	duplex float64
	ways   [2]direction
}

// The directions of a link.
const (
	inward = iota
	outward
)

// direction is one way of a link: its copies in the order of time, without those that no
// later copy the other way can meet, and when it is free.
type direction struct {
	copies []*transfer
	free   time.Duration
}

// transfer is a copy over the link.
type transfer struct {
	from, to time.Duration
	queue    *virtualQueue // that it is the last of, or was
	done     *virtualEvent // recorded behind it; nil if none
}

func newLink(d machine.Duplex) link {
	if d == 0 {
		d = machine.FullDuplex
	}
	return link{duplex: float64(d)}
}

// copy appends a copy to a queue, which has come to when it may begin; it would take so
// long alone.
func (l *link) copy(q *virtualQueue, way int, alone time.Duration) {
	d, begin := &l.ways[way], q.now
	from := max(begin, d.free)
	if l.duplex == 1 {
		d.free = from + alone
	} else {
		d.free = l.ways[1-way].meet(from, alone, l.duplex)
		q.last = &transfer{from: from, to: d.free, queue: q}
		d.copies = append(d.copies, q.last)
	}
	q.pass(d.free - begin)
}

// meet is when a copy the other way ends, which this direction shares the link with.
func (d *direction) meet(at, left time.Duration, duplex float64) time.Duration {
	for len(d.copies) > 0 && d.copies[0].to <= at {
		d.copies = d.copies[1:]
	}
	for i, other := range d.copies {
		if alone := other.from - at; alone > 0 {
			if left <= alone {
				break
			}
			at, left = at+alone, left-alone
		}
		both := min(left, other.to-at)
		took := time.Duration(float64(both) / duplex)
		d.delay(i, took-both)
		at, left = at+took, left-both
	}
	return at + left
}

// delay has a copy end later, and those behind it begin when it ends.
func (d *direction) delay(i int, by time.Duration) {
	d.copies[i].end(by)
	for ; i+1 < len(d.copies) && d.copies[i+1].from < d.copies[i].to; i++ {
		by := d.copies[i].to - d.copies[i+1].from
		d.copies[i+1].from += by
		d.copies[i+1].end(by)
	}
	d.free = max(d.free, d.copies[len(d.copies)-1].to)
}

// end has the copy end later, and its queue and its event with it.
func (t *transfer) end(later time.Duration) {
	t.to += later
	if late := t.to - t.queue.now; late > 0 {
		t.queue.pass(late)
	}
	if t.done != nil {
		t.done.at = max(t.done.at, t.to)
	}
}
