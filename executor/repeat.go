package executor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"spillway/device"
)

// Iterations of small models take longer to hand over than to do. Where that is so, and
// the device can, an iteration is noted once and then repeated with one call. The work
// is the same, in the same order between the same waits, so the bits are too.

// repeat is what is known of repeating.
type capture struct {
	watched int // iterations timed
	pays    bool
	pace    pace         // of the iteration that is being handed over
	graph   device.Graph // nil until an iteration was noted
	// What one iteration adds to what is counted.
	counters  Counters
	transfers map[*Transfers]Transfers
}

// unhindered is how many launches and copies a device takes at least before whoever hands
// them over has to wait for it: a card a thousand, and some of ours are several of its own.
const unblocked = 128

// mostNoted is how many launches and copies an iteration has at most that is noted: a card
// keeps some KiB of each, whose sum is to stay within what is set aside for first runs.
const maxCaptured = 2048

// Notes says whether an iteration on so many devices that hands over so much is noted, on
// a device that can, where handing it over takes most of its time.
func CanCapture(devices int, handed int64) bool { return devices == 1 && handed <= maxCaptured }

// pace is how long handing over took when the queues were not full.
type pace struct {
	start time.Time
	took  time.Duration
	n     int64 // launches and copies
}

// count says how many launches and copies have been handed over.
func (p *pace) count(n int64) {
	if p.n < unblocked {
		p.n, p.took = n, time.Since(p.start)
	}
}

// of is how long so many take.
func (p *pace) of(n int64) time.Duration {
	return time.Duration(float64(p.took) / float64(max(p.n, 1)) * float64(n))
}

// watch decides, after an iteration that was issued step by step, whether repeating pays:
// when more than half the time goes into handing over, not counting what is waited for
// because the queues are full. The first one also loads code.
func (r *capture) observe(devices int, handed int64, all time.Duration) {
	if r.graph != nil || r.watched > 1 {
		return
	}
	r.watched++
	r.pays = r.watched > 1 && CanCapture(devices, handed) && r.pace.of(handed) > all/2
}

// start gives an iteration to the queues, noted or step by step.
func (e *Executor) start(ctx context.Context) error {
	if e.trace.sink != nil || e.onGradient != nil {
		return e.issueAll(ctx)
	}
	if e.graph.graph != nil {
		if err := ctx.Err(); err != nil {
			return err
		}
		e.countReplay()
		return e.graph.graph.Launch() // nothing trails what is repeated
	}
	if e.graph.pays { // on the one device there is
		if d, can := e.devices[0].(device.GraphCapturer); can {
			return e.captureGraph(ctx, d)
		}
	}
	return e.issueAll(ctx)
}

// capture notes an iteration and starts it. A device that cannot note it is not asked
// again.
func (e *Executor) captureGraph(ctx context.Context, d device.GraphCapturer) error {
	e.graph.pays = false
	if err := e.awaitCarried(); err != nil {
		return err
	}
	before, moved := e.counters, map[*Transfers]Transfers{}
	for _, t := range e.transfers {
		moved[t] = *t
	}
	run, err := d.Capture(e.opened, func() error { return e.issueAll(ctx) })
	if errors.Is(err, device.ErrNotCapturable) {
		e.counters = before
		for t, was := range moved {
			*t = was
		}
		return e.issueAll(ctx)
	}
	if err != nil {
		return fmt.Errorf("noting an iteration: %w", err)
	}
	e.graph.graph, e.graph.transfers = run, moved
	after := e.counters
	e.graph.counters = Counters{Moves: after.Moves - before.Moves, BytesIn: after.BytesIn - before.BytesIn,
		BytesOut: after.BytesOut - before.BytesOut, Launches: after.Launches - before.Launches}
	for t, was := range moved {
		moved[t] = Transfers{Moves: t.Moves - was.Moves, Bytes: t.Bytes - was.Bytes}
	}
	return run.Launch()
}

// handed is how many launches and copies were handed over so far.
func (c *Counters) launched() int64 { return c.Launches + c.Moves }

// count adds what a noted iteration does.
func (e *Executor) countReplay() {
	c, one := &e.counters, e.graph.counters
	c.Moves, c.BytesIn, c.BytesOut, c.Launches = c.Moves+one.Moves, c.BytesIn+one.BytesIn, c.BytesOut+one.BytesOut, c.Launches+one.Launches
	for t, one := range e.graph.transfers {
		t.Moves, t.Bytes = t.Moves+one.Moves, t.Bytes+one.Bytes
	}
}

// Repeats says whether iterations are repeated from a note.
func (e *Executor) ReplaysGraph() bool { return e.graph.graph != nil }
