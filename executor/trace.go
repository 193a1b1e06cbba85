package executor

import (
	"fmt"

	"spillway/device"
	"spillway/plan"
	"spillway/trace"
)

// tracer reports the instructions of an iteration to a sink.
type tracer struct {
	sink   trace.Sink
	events []trace.Event // by instruction; their times are filled in after each iteration
	// began, by device, is recorded when an iteration begins: every device has a clock of
	// its own, and is shown by the first one's.
	began []device.Event
}

// Trace has every instruction of the iterations to come reported to a sink, with the times
// the devices took; nil ends it. Tracing costs two events per instruction, and an iteration
// that is traced waits for what it carries over.
func (r *runner) Trace(sink trace.Sink) error {
	if err := r.awaitCarried(); err != nil {
		return err
	}
	r.tracer = tracer{sink: sink}
	list := r.main.instructions
	for i := range list {
		list[i].start, list[i].end = nil, nil
	}
	if sink == nil {
		return nil
	}
	for _, d := range r.memory.devices {
		ev, err := d.Event()
		if err != nil {
			return fmt.Errorf("tracing: %w", err)
		}
		r.tracer.began = append(r.tracer.began, ev)
	}
	r.tracer.events = make([]trace.Event, len(list))
	for i := range list {
		s, c := &r.memory.plan.Instructions[i], &list[i]
		r.tracer.events[i] = describe(r.memory.plan, s)
		if c.queue == nil {
			continue
		}
		for _, mark := range []*device.Event{&c.start, &c.end} {
			ev, err := r.memory.devices[s.Device].Event()
			if err != nil {
				return fmt.Errorf("tracing: %w", err)
			}
			*mark = ev
		}
	}
	return nil
}

// reportEvents gives the events of the iteration that just ended to the sink. A free has
// no time of its own: it is when the instruction before it ended.
func (r *runner) reportEvents() {
	if r.tracer.sink == nil {
		return
	}
	var last int64
	for i := range r.tracer.events {
		ev, c := &r.tracer.events[i], &r.main.instructions[i]
		ev.Start, ev.End = last, last
		if c.start != nil {
			d := r.memory.plan.Instructions[i].Device
			ahead := r.tracer.began[d].Time() - r.tracer.began[0].Time() // the device's clock, of the first one's
			ev.Start, ev.End = int64(c.start.Time()-ahead), int64(c.end.Time()-ahead)
		}
		last = ev.End
		r.tracer.sink.Record(*ev)
	}
}

var verbs = map[plan.Verb]trace.Verb{plan.Move: trace.Move, plan.Run: trace.Run, plan.Reduce: trace.Reduce, plan.Update: trace.Update, plan.Free: trace.Free}

// describe is the event of an instruction but for its times.
func describe(p *plan.Plan, s *plan.Instruction) trace.Event {
	ev := trace.Event{Verb: verbs[s.Verb], Block: s.Block, MicroBatch: s.MicroBatch, Lane: trace.Lane{Device: p.Devices[s.Device].Name, Queue: string(s.Lane)}}
	switch s.Verb {
	case plan.Move:
		ev.Name, ev.Bytes = p.Buffers[s.Src].Name, p.Buffers[s.Src].Bytes
	case plan.Free:
		ev.Name, ev.Bytes = p.Buffers[s.Dst].Name, p.Buffers[s.Dst].Bytes
	case plan.Run:
		ev.Name = p.Programs[s.Program].Graph.Name
	case plan.Update:
		ev.Name, ev.Bytes = p.Slabs[s.Slab].Name, p.Slabs[s.Slab].WeightBytes
	case plan.Reduce:
		ev.Name = "gradients"
	}
	return ev
}
