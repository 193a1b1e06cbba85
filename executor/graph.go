package executor

import (
	"context"
	"errors"
	"fmt"

	"spillway/device"
)

// A plan may ask for its iterations to be captured (plan.Captured): the device records one
// as a graph and replays it with one call. The work is the same, in the same order between
// the same waits, so the bits are too. A device that cannot capture is given instructions
// one by one.

// capturedGraph is the captured form of a program.
type capturedGraph struct {
	wanted bool         // the plan asks for it, and the device has not refused
	warm   bool         // the program has run once, so that all code is loaded
	replay device.Graph // nil until captured
	// A replay adds to the counters what issuing did between these two moments.
	before, after tally
}

// start gives a program to the queues, as a graph or instruction by instruction. Traces
// and gradients are of instructions, so what is observed is not replayed.
func (r *runner) start(ctx context.Context, p *program) error {
	for i := range p.instructions { // events of the last iteration become those of the previous one
		if c := &p.instructions[i]; c.last != nil {
			c.done, c.last = c.last, c.done
		}
	}
	if r.tracer.of == p { // while nothing runs
		if err := r.tracer.clocks.begin(r.memory); err != nil {
			return err
		}
	}
	if err := r.takeBatch(p); err != nil {
		return err
	}
	g := &p.graph
	r.replayed = false
	if !g.wanted || r.tracer.of == p || r.onGradient != nil {
		return r.issueAll(ctx, p)
	}
	if g.replay != nil {
		if err := ctx.Err(); err != nil {
			return err
		}
		r.tally.add(g.before, g.after)
		r.replayed = true
		return g.replay.Launch()
	}
	d, can := r.memory.devices[0].(device.GraphCapturer) // of the one device there is
	if g.warm && can {
		return r.captureGraph(ctx, p, d)
	}
	g.warm = true
	return r.issueAll(ctx, p)
}

// captureGraph captures a program and starts it. A device that refuses is not asked again.
func (r *runner) captureGraph(ctx context.Context, p *program, d device.GraphCapturer) error {
	if err := r.awaitCarried(); err != nil {
		return err
	}
	before := r.tally.snapshot()
	r.capturing = true
	replay, err := d.Capture(r.memory.queues, func() error { return r.issueAll(ctx, p) })
	r.capturing = false
	if errors.Is(err, device.ErrNotCapturable) {
		p.graph.wanted = false
		r.tally.add(r.tally.snapshot(), before)
		return r.issueAll(ctx, p)
	}
	if err != nil {
		return fmt.Errorf("capturing an iteration: %w", err)
	}
	p.graph.replay, p.graph.before, p.graph.after = replay, before, r.tally.snapshot()
	r.replayed = true
	return replay.Launch()
}

// ReplaysGraph says whether iterations are replayed from a captured graph.
func (r *runner) ReplaysGraph() bool { return r.main.graph.replay != nil }
