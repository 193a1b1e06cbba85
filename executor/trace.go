package executor

import (
	"fmt"

	"spillway/device"
	"spillway/plan"
	"spillway/trace"
)

// traced is what an iteration tells of itself when asked to.
type tracer struct {
	sink   trace.Sink
	events []trace.Event // by step, their times filled in after each iteration
	// began, by device, is recorded when an iteration begins: every device has a clock of
	// its own, and is shown by the first one's.
	began []device.Event
}

// Trace has every step of the iterations to come told to a sink, with the times
// the devices took; nil ends it. Tracing costs two marks per step, and an iteration that
// is told waits for what trails it.
func (e *Executor) Trace(sink trace.Sink) error {
	if err := e.awaitCarried(); err != nil {
		return err
	}
	e.trace = tracer{sink: sink}
	for i := range e.instructions {
		e.instructions[i].start, e.instructions[i].end = nil, nil
	}
	if sink == nil {
		return nil
	}
	for _, d := range e.devices {
		ev, err := d.Event()
		if err != nil {
			return fmt.Errorf("tracing: %w", err)
		}
		e.trace.began = append(e.trace.began, ev)
	}
	e.trace.events = make([]trace.Event, len(e.instructions))
	for i := range e.instructions {
		s, p := &e.plan.Instructions[i], &e.instructions[i]
		e.trace.events[i] = e.describe(s)
		if p.queue == nil {
			continue
		}
		for _, mark := range []*device.Event{&p.start, &p.end} {
			ev, err := e.devices[s.Device].Event()
			if err != nil {
				return fmt.Errorf("tracing: %w", err)
			}
			*mark = ev
		}
	}
	return nil
}

// begin records the beginning of an iteration on every device, while nothing runs.
func (t *tracer) begin(queues map[laneKey]device.Queue) error {
	for d, ev := range t.began {
		if err := queues[laneKey{d, plan.Compute}].Record(ev); err != nil {
			return fmt.Errorf("tracing: %w", err)
		}
	}
	return nil
}

// ahead is how much later than the first one's the clock of a device is.
func (t *tracer) clockOffset(d int) int64 { return int64(t.began[d].Time() - t.began[0].Time()) }

// tell hands the events of the iteration that just ended to the sink. A free has
// no time of its own: it is when the step before it ended.
func (e *Executor) reportEvents() {
	if e.trace.sink == nil {
		return
	}
	var last int64
	for i := range e.instructions {
		ev, p := &e.trace.events[i], &e.instructions[i]
		ev.Start, ev.End = last, last
		if p.start != nil {
			ahead := e.trace.clockOffset(e.plan.Instructions[i].Device)
			ev.Start, ev.End = int64(p.start.Time())-ahead, int64(p.end.Time())-ahead
		}
		last = ev.End
		e.trace.sink.Record(*ev)
	}
}

var verbs = map[plan.Verb]trace.Verb{plan.Move: trace.Move, plan.Run: trace.Run, plan.Reduce: trace.Reduce, plan.Update: trace.Update, plan.Free: trace.Free}

// describe is the event of a step but for its times.
func (e *Executor) describe(s *plan.Instruction) trace.Event {
	ev := trace.Event{Verb: verbs[s.Verb], Block: s.Block, MicroBatch: s.MicroBatch, Lane: trace.Lane{Device: e.plan.Devices[s.Device].Name, Queue: string(s.Lane)}}
	switch s.Verb {
	case plan.Move:
		ev.Name, ev.Bytes = e.plan.Buffers[s.Src].Name, e.plan.Buffers[s.Src].Bytes
	case plan.Free:
		ev.Name, ev.Bytes = e.plan.Buffers[s.Dst].Name, e.plan.Buffers[s.Dst].Bytes
	case plan.Run:
		ev.Name = e.plan.Programs[s.Program].Graph.Name
	case plan.Update:
		ev.Name, ev.Bytes = e.plan.Slabs[s.Slab].Name, e.plan.Slabs[s.Slab].WeightBytes
	case plan.Reduce:
		ev.Name = "gradients"
	}
	return ev
}
