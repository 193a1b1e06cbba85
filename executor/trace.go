package executor

import (
	"fmt"

	"spillway/device"
	"spillway/plan"
	"spillway/trace"
)

// tracer reports the instructions of an iteration, or of a phase, to a sink.
type tracer struct {
	of     *program // that is traced
	sink   trace.Sink
	ops    func(OpTime)  // nil where instructions are timed as a whole
	events []trace.Event // by instruction; their times are filled in after each iteration
	clocks clocks
}

// OpTime is when an op of an instruction ran, by the clock of traces.
type OpTime struct {
	Instruction int
	Op          int // of a run the node of its program; of an update the span of its piece
	Start, End  int64
}

// Trace has every instruction of the iterations to come reported to a sink, with the times
// the devices took; nil ends it. Tracing costs two events per instruction, and an iteration
// that is traced waits for what it carries over.
func (r *runner) Trace(sink trace.Sink) error { return r.TracePhase("", sink, nil) }

// TracePhase is Trace of a phase of the plan, "" for its main instructions. With ops, each op of an
// instruction is timed too, which costs an event each and keeps kernels from overlapping.
func (r *runner) TracePhase(phase string, sink trace.Sink, ops func(OpTime)) error {
	if err := r.awaitCarried(); err != nil {
		return err
	}
	of := r.main
	if phase != "" {
		if of = r.phases[phase]; of == nil {
			return fmt.Errorf("tracing: the plan for %s has no phase %q", r.memory.plan.Model, phase)
		}
	}
	if before := r.tracer.of; before != nil {
		for i := range before.instructions {
			c := &before.instructions[i]
			c.start, c.end, c.marks = nil, nil, nil
		}
	}
	r.tracer = tracer{}
	if sink == nil {
		return nil
	}
	t := tracer{of: of, sink: sink, ops: ops, events: make([]trace.Event, len(of.instructions))}
	var err error
	if t.clocks, err = newClocks(r.memory); err != nil {
		return err
	}
	r.tracer = t
	for i := range of.instructions {
		s, c := &of.plan.Instructions[i], &of.instructions[i]
		t.events[i] = describe(of.plan, s)
		if c.queue == nil {
			continue
		}
		marks := []*device.Event{&c.start, &c.end}
		if ops != nil && c.launches != nil {
			c.marks = make([]device.Event, len(c.launches)+1)
			for m := range c.marks {
				marks = append(marks, &c.marks[m])
			}
		}
		for _, mark := range marks {
			ev, err := r.memory.devices[s.Device].Event()
			if err != nil {
				return fmt.Errorf("tracing: %w", err)
			}
			*mark = ev
		}
	}
	return nil
}

// issueMarked issues the kernels of an instruction with a mark before the first and behind each.
func (r *runner) issueMarked(c *compiled) error {
	if err := c.queue.Record(c.marks[0]); err != nil {
		return err
	}
	for i := range c.launches {
		if err := c.queue.Launch(c.launches[i].kernel, &c.launches[i].launch); err != nil {
			return err
		}
		if err := c.queue.Record(c.marks[i+1]); err != nil {
			return err
		}
	}
	r.tally.Launches += int64(len(c.launches))
	return nil
}

// reportEvents gives the events of a program that just ended to the sink, if it is traced. A free
// has no time of its own: it is when the instruction before it ended, and so is a copy of a next batch that did
// not come.
func (r *runner) reportEvents(p *program) error {
	t := &r.tracer
	if t.sink == nil || t.of != p {
		return nil
	}
	if err := t.clocks.end(r.memory); err != nil {
		return err
	}
	var last int64
	for i := range t.events {
		ev, c := &t.events[i], &p.instructions[i]
		ev.Start, ev.End = last, last
		if c.start != nil && (r.next.sent || !p.plan.BringsNextBatch(&p.plan.Instructions[i])) {
			d := p.plan.Instructions[i].Device
			ev.Start, ev.End = t.clocks.at(d, c.start), t.clocks.at(d, c.end)
			for m := range c.launches {
				if c.marks != nil {
					t.ops(OpTime{i, m, t.clocks.at(d, c.marks[m]), t.clocks.at(d, c.marks[m+1])})
				}
			}
		}
		last = ev.End
		t.sink.Record(*ev)
	}
	return nil
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
