package view

import (
	"io"

	"spillway/plan"
	"spillway/trace"
)

// WriteChrome writes a timeline for Perfetto and chrome://tracing: the forecast and the
// measurement are two processes, lanes are their threads. With the plan that the timeline is of,
// each has the memory of every tier too, by purpose; nil leaves that out.
func (t Timeline) WriteChrome(w io.Writer, p *plan.Plan) error {
	var events []trace.Event
	var counters []trace.Counter
	for _, l := range t.Lanes {
		for _, b := range l.Bars {
			e := trace.Event{Verb: b.Verb, Name: t.Names[b.Name], Bytes: b.Bytes, Block: b.Block, MicroBatch: b.MicroBatch}
			if t.ForecastSeconds > 0 {
				e.Lane, e.Start, e.End = trace.Lane{Device: "forecast", Queue: l.Device + " " + l.Queue}, b.Start, b.End
				events = append(events, e)
			}
			if t.Step > 0 {
				e.Lane, e.Start, e.End = trace.Lane{Device: "measured", Queue: l.Device + " " + l.Queue}, b.MeasuredAt, b.MeasuredEnd
				events = append(events, e)
			}
		}
	}
	if p != nil {
		memory := MemoryOf(p)
		counters = append(t.memory("forecast", memory, func(b Bar) int64 { return b.Start }), t.memory("measured", memory, func(b Bar) int64 { return b.MeasuredAt })...)
	}
	return trace.WriteChrome(w, events, counters...)
}

// memory are the bytes of each tier over the time of the instructions that change them. What an
// instruction writes is there from when it begins. The plan's order is that in which instructions are
// issued, and a change is never shown before one that precedes it.
func (t Timeline) memory(process string, m Memory, at func(Bar) int64) (list []trace.Counter) {
	times := make([]int64, m.Instructions)
	for _, l := range t.Lanes {
		for _, b := range l.Bars {
			if b.Instruction < len(times) {
				times[b.Instruction] = at(b)
			}
		}
	}
	for i := 1; i < len(times); i++ {
		times[i] = max(times[i], times[i-1]) // frees have no time of their own
	}
	for _, tier := range m.Tiers {
		for i, change := range tier.Changes {
			c := trace.Counter{Process: process, Name: string(tier.Tier) + " memory"}
			if change >= 0 && change < len(times) {
				c.At = times[change]
			}
			for k, class := range tier.Classes {
				c.Parts = append(c.Parts, trace.Part{Name: string(class), Value: tier.Bytes[k][i]})
			}
			list = append(list, c)
		}
	}
	return list
}

// TimelinePlan is the plan whose instructions a timeline of the run has: its main ones, or those of
// a phase. nil where the log has none.
func (r *Run) TimelinePlan(t Timeline) (*plan.Plan, error) {
	p, err := r.Plan()
	if err != nil || p == nil || t.Phase == "" {
		return p, err
	}
	return p.Phase(t.Phase)
}
