package sim

import (
	"math"
	"time"

	"spillway/machine"
)

// link is the path to the host, with a direction each way. While both are busy, each has
// only a share of its rate. While the processor of the host updates, it and the copies
// share the memory of the host.
//
// Copies come in the order of the plan, and what follows from one may be planned before
// another comes that shares the link with it. The later one delays the earlier, the copies
// behind it in its queue, and whoever waits for them from then on. All in all everybody
// carries what they can.
type link struct {
	channels [parties]*channel // nil: nobody shares memory
	// speeds of the parties by the set of those that are busy.
	speeds [1 << parties][parties]float64
	alone  bool // nobody ever slows anybody down
	// seen counts, of what passes each way, what ended before anything that a party, the
	// first index, will still carry.
	seen [parties][parties]int
}

// The parties: the directions of a link, and the processor.
const (
	inward = iota
	outward
	hostCPU
	parties
)

// way carries one thing after the other: a direction copies, a processor kernels.
type channel struct {
	passing []*transfer // in the order of time
	free    time.Duration
}

// transfer is a copy over the link, or a kernel of the host.
type transfer struct {
	from, to time.Duration
	queue    *virtualQueue // that it is the last of, or was
	done     *virtualEvent // recorded behind it; nil if none
}

// hostMemory is what copies of all cards alike and the processor share, in bytes a second.
type hostMemory struct {
	rate    float64 // of everything together
	in, out float64 // of the cards' copies
	updates float64 // of the processor's kernels, alone
}

func newLink(d machine.Bidirectional) link {
	if d == 0 {
		d = machine.FullDuplex
	}
	l := link{channels: [parties]*channel{inward: {}, outward: {}}, alone: d == machine.FullDuplex}
	for busy := range l.speeds {
		l.speeds[busy] = [parties]float64{1, 1, 1}
		if has(busy, inward) && has(busy, outward) {
			l.speeds[busy][inward], l.speeds[busy][outward] = float64(d), float64(d)
		}
	}
	return l
}

// share lets a link meet a processor.
func (l *link) share(p *channel, m hostMemory) {
	l.channels[hostCPU], l.alone = p, false
	for busy := range l.speeds {
		if has(busy, hostCPU) {
			m.slow(&l.speeds[busy], busy)
		}
	}
}

// slow lets the processor and what it meets have their shares of memory. What comes from a
// card is written in any case; what goes to it and the processor get of the rest, at least
// a quarter of all, as they ask for. An H200 and 16 cores do so within 12%.
func (m hostMemory) slow(speeds *[parties]float64, busy int) {
	rest, asked := m.rate, m.updates
	if has(busy, outward) {
		rest = max(rest-m.out*speeds[outward], m.rate/4)
	}
	if has(busy, inward) {
		asked += m.in * speeds[inward]
	}
	if share := rest / asked; share < 1 {
		speeds[inward] *= share
		speeds[hostCPU] *= share
	}
}

func has(set, party int) bool { return set>>party&1 != 0 }

// copy appends a copy to a queue, which has come to when it may begin; it would take so
// long alone.
func (l *link) copy(q *virtualQueue, direction int, alone time.Duration) {
	if l.alone {
		w, begin := l.channels[direction], q.now
		w.free = max(begin, w.free) + alone
		q.advance(w.free - begin)
		return
	}
	l.carry(q, direction, alone)
}

// carry appends what a party does to a queue.
func (l *link) carry(q *virtualQueue, party int, alone time.Duration) {
	w, begin := l.channels[party], q.now
	from := max(begin, w.free)
	w.free = l.meet(party, from, alone)
	q.last = &transfer{from: from, to: w.free, queue: q}
	w.passing = append(w.passing, q.last)
	q.advance(w.free - begin)
}

// meet is when something ends that a party begins at a time and that would take so long
// alone. Those it meets are delayed.
func (l *link) meet(party int, at, left time.Duration) time.Duration {
	for left > 0 {
		busy, until := l.others(party, at)
		before, now := &l.speeds[busy], &l.speeds[busy|1<<party]
		span := min(scale(left, 1/now[party]), until-at)
		for other := range l.channels {
			if has(busy, other) {
				span = min(span, scale(l.met(party, other).to-at, before[other]/now[other]))
			}
		}
		span = max(span, 1)
		for other, w := range l.channels {
			if has(busy, other) {
				w.delay(l.seen[party][other], scale(span, 1-now[other]/before[other]))
			}
		}
		at, left = at+span, left-max(scale(span, now[party]), 1)
	}
	return at + left
}

// met is what a party meets of another one, or will.
func (l *link) met(party, other int) *transfer {
	return l.channels[other].passing[l.seen[party][other]]
}

// others are those that are busy at a time but for one party, and when that changes by
// somebody's beginning.
func (l *link) others(party int, at time.Duration) (busy int, until time.Duration) {
	until = math.MaxInt64
	for other, w := range l.channels {
		if other == party || w == nil {
			continue
		}
		seen := &l.seen[party][other]
		for *seen < len(w.passing) && w.passing[*seen].to <= at {
			*seen++
		}
		if *seen == len(w.passing) {
			continue
		}
		if from := w.passing[*seen].from; from > at {
			until = min(until, from)
		} else {
			busy |= 1 << other
		}
	}
	return busy, until
}

func scale(d time.Duration, by float64) time.Duration { return time.Duration(float64(d) * by) }

// delay has what passes end later, and what comes behind it begin when it ends.
func (w *channel) delay(i int, by time.Duration) {
	if by <= 0 {
		return
	}
	w.passing[i].end(by)
	for ; i+1 < len(w.passing) && w.passing[i+1].from < w.passing[i].to; i++ {
		by := w.passing[i].to - w.passing[i+1].from
		w.passing[i+1].from += by
		w.passing[i+1].end(by)
	}
	w.free = max(w.free, w.passing[len(w.passing)-1].to)
}

// end has it end later, and its queue and its event with it.
func (t *transfer) end(later time.Duration) {
	t.to += later
	if late := t.to - t.queue.now; late > 0 {
		t.queue.advance(late)
	}
	if t.done != nil {
		t.done.at = max(t.done.at, t.to)
	}
}
