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
	adds   amounts      // what a replay adds to the counters
}

// start gives a program to the queues, as a graph or instruction by instruction. Traces
// and gradients are of instructions, so what is observed is not replayed.
func (e *Executor) start(ctx context.Context, p *program) error {
	g := &p.graph
	if !g.wanted || e.tracer.sink != nil || e.onGradient != nil {
		return e.issueAll(ctx, p)
	}
	if g.replay != nil {
		if err := ctx.Err(); err != nil {
			return err
		}
		e.tally.add(g.adds)
		return g.replay.Launch()
	}
	d, can := e.memory.devices[0].(device.GraphCapturer) // of the one device there is
	if g.warm && can {
		return e.captureGraph(ctx, p, d)
	}
	g.warm = true
	return e.issueAll(ctx, p)
}

// captureGraph captures a program and starts it. A device that refuses is not asked again.
func (e *Executor) captureGraph(ctx context.Context, p *program, d device.GraphCapturer) error {
	if err := e.awaitCarried(); err != nil {
		return err
	}
	before := e.tally.amounts()
	replay, err := d.Capture(e.memory.queues, func() error { return e.issueAll(ctx, p) })
	if errors.Is(err, device.ErrNotCapturable) {
		p.graph.wanted = false
		e.tally.reset(before)
		return e.issueAll(ctx, p)
	}
	if err != nil {
		return fmt.Errorf("capturing an iteration: %w", err)
	}
	p.graph.replay, p.graph.adds = replay, e.tally.since(before)
	return replay.Launch()
}

// ReplaysGraph says whether iterations are replayed from a captured graph.
func (e *Executor) ReplaysGraph() bool { return e.main.graph.replay != nil }
