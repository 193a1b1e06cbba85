package sim

import (
	"math"
	"time"

	"spillway/machine"
)

// link is the path to the host, with two directions. While both are busy, each has only a
// share of its rate. While the CPU of the host updates, its kernels and the copies share the
// bandwidth of host memory. Where the CPU is the device, they share its cores.
//
// Transfers are simulated in the order of the plan, which is not the order of time: one that
// is added later may overlap an earlier one and slow it down. Then the earlier one ends later,
// and so do those after it in its queue, and whoever waits for them from then on. The bytes
// carried in all are right.
type link struct {
	channels [parties]*channel // nil: that party does not take part
	// speeds of the parties, 1 for full, by the set of those that are busy.
	speeds [1 << parties][parties]float64
	alone  bool // no party ever slows another down
	// seen[a][b] is how many transfers of party b ended before anything that party a will
	// still carry: those need not be looked at again.
	seen [parties][parties]int
}

// The parties: the directions of a link, and the CPU.
const (
	inward = iota
	outward
	hostCPU
	parties
)

// channel carries one transfer after the other: a direction copies, the CPU kernels.
type channel struct {
	passing []*transfer // in the order of time
	free    time.Duration
}

// transfer is a copy over the link, or a kernel of the host.
type transfer struct {
	from, to time.Duration
	queue    *virtualQueue // that it belongs to
	done     *virtualEvent // recorded after it; nil if none
}

// hostMemory is the bandwidth that copies of all GPUs and the CPU share, in bytes a second.
// GPUs are alike, so that one link stands for all.
type hostMemory struct {
	rate    float64 // of everything together, which may be less than the CPU has alone
	in, out float64 // of the GPUs' copies
	updates float64 // of the CPU's kernels, alone
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

// share has a link share host memory with a CPU.
func (l *link) share(cpu *channel, m hostMemory) {
	l.channels[hostCPU], l.alone = cpu, false
	for busy := range l.speeds {
		if has(busy, hostCPU) {
			m.slow(&l.speeds[busy], busy)
		}
	}
}

// slowed has copies inward go at a share of their rate while a CPU computes, which they do not slow.
func (l *link) slowed(cpu *channel, share float64) {
	l.channels[hostCPU], l.alone = cpu, false
	for busy := range l.speeds {
		if has(busy, hostCPU) && has(busy, inward) {
			l.speeds[busy][inward] *= share
		}
	}
}

// takeCores has copies of a CPU, each made by one of its cores, leave its kernels the others. Where there are no others, all
// share: a core computes and copies in turns. If the memory carries less than all ask for then, 0 for enough, each has a share of
// its speed. A copy reads and writes.
func (l *link) takeCores(kernels *channel, cores int, m hostMemory) {
	l.channels[hostCPU], l.alone = kernels, false
	for busy := range l.speeds {
		copies := 0
		for _, direction := range []int{inward, outward} {
			if has(busy, direction) {
				copies++
			}
		}
		each := 1.0 // of a core, that a copy has
		left := float64(cores - copies)
		if copies >= cores {
			each = float64(cores) / float64(copies+1)
			left = each
		}
		for _, direction := range []int{inward, outward} {
			l.speeds[busy][direction] *= each
		}
		l.speeds[busy][hostCPU] = left / float64(cores)
		var asked float64
		for party, rate := range [parties]float64{inward: 2 * m.in, outward: 2 * m.out, hostCPU: m.updates} {
			if has(busy, party) {
				asked += rate * l.speeds[busy][party]
			}
		}
		if share := m.rate / max(asked, 1); m.rate > 0 && share < 1 && busy != 1<<hostCPU {
			for party := range l.speeds[busy] {
				l.speeds[busy][party] *= share
			}
		}
	}
}

// slow divides host memory between the CPU and the copies that run with it. What comes from
// a GPU is written at its full speed; what goes to it and the CPU share the rest, at least a
// quarter of all, in proportion to what they ask for. An H200 with 16 cores is within 12%.
func (m hostMemory) slow(speeds *[parties]float64, busy int) {
	if busy == 1<<hostCPU { // alone
		return
	}
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

// copy appends a copy to a queue, beginning no sooner than the queue's time; alone is how
// long it would take by itself.
func (l *link) copy(q *virtualQueue, direction int, alone time.Duration) {
	if !l.alone {
		l.carry(q, direction, alone)
		return
	}
	c, begin := l.channels[direction], q.now
	c.free = max(begin, c.free) + alone
	q.advance(c.free - begin)
}

// carry appends a transfer of a party to a queue.
func (l *link) carry(q *virtualQueue, party int, alone time.Duration) {
	c, begin := l.channels[party], q.now
	from := max(begin, c.free)
	c.free = l.meet(party, from, alone)
	q.last = &transfer{from: from, to: c.free, queue: q}
	c.passing = append(c.passing, q.last)
	q.advance(c.free - begin)
}

// meet is when a transfer ends that a party begins at a time and that would take so long
// by itself. Transfers of other parties that it overlaps are delayed.
func (l *link) meet(party int, at, left time.Duration) time.Duration {
	for left > 0 {
		busy, until := l.others(party, at)
		before, now := &l.speeds[busy], &l.speeds[busy|1<<party]
		span := min(scale(left, 1/now[party]), until-at)
		for other := range l.channels {
			if has(busy, other) {
				span = min(span, scale(l.channels[other].passing[l.seen[party][other]].to-at, before[other]/now[other]))
			}
		}
		span = max(span, 1)
		for other, c := range l.channels {
			if has(busy, other) {
				c.delay(l.seen[party][other], scale(span, 1-now[other]/before[other]))
			}
		}
		at, left = at+span, left-max(scale(span, now[party]), 1)
	}
	return at + left
}

// others are the other parties that are busy at a time, and until when no further one
// begins.
func (l *link) others(party int, at time.Duration) (busy int, until time.Duration) {
	until = math.MaxInt64
	for other, c := range l.channels {
		if other == party || c == nil {
			continue
		}
		seen := &l.seen[party][other]
		for *seen < len(c.passing) && c.passing[*seen].to <= at {
			*seen++
		}
		if *seen == len(c.passing) {
			continue
		}
		if from := c.passing[*seen].from; from > at {
			until = min(until, from)
		} else {
			busy |= 1 << other
		}
	}
	return busy, until
}

func scale(d time.Duration, by float64) time.Duration { return time.Duration(float64(d) * by) }

// delay has a transfer end later, and those after it begin when the one before ends.
func (c *channel) delay(i int, by time.Duration) {
	if by <= 0 {
		return
	}
	c.passing[i].end(by)
	for ; i+1 < len(c.passing) && c.passing[i+1].from < c.passing[i].to; i++ {
		by := c.passing[i].to - c.passing[i+1].from
		c.passing[i+1].from += by
		c.passing[i+1].end(by)
	}
	c.free = max(c.free, c.passing[len(c.passing)-1].to)
}

// end has a transfer end later, and its queue and its event with it.
func (t *transfer) end(later time.Duration) {
	t.to += later
	if late := t.to - t.queue.now; late > 0 {
		t.queue.advance(late)
	}
	if t.done != nil {
		t.done.at = max(t.done.at, t.to)
	}
}
