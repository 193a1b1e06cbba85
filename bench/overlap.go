package bench

import (
	"cmp"
	"context"
	"slices"

	"spillway/plan"
	"spillway/run"
	"spillway/trace"
)

// Overlap is what worked at the same time in one step that adds a token, of a model that is larger than
// its device, in seconds by the clocks of the devices.
type Overlap struct {
	Seconds float64 `json:"seconds"`      // of the step, while its instructions are timed
	Link    float64 `json:"link_seconds"` // in which weights came to the device
	CPU     float64 `json:"cpu_seconds"`  // in which the CPU computed blocks
	Both    float64 `json:"both_seconds"` // in which both did
}

// overlap times the instructions of a step of some texts, and puts it next to who was to compute what.
func (w *generationRun) overlap(ctx context.Context, streams int64) (*run.Division, *Overlap, error) {
	if w.division == nil {
		return nil, nil, nil
	}
	phase := plan.Draw(streams)
	view, err := w.job.Plan.Phase(phase)
	if err != nil {
		phase = plan.Step(streams)
		if view, err = w.job.Plan.Phase(phase); err != nil {
			return w.division, nil, nil // a step that has place for more texts
		}
	}
	ring := trace.NewRing(len(view.Instructions))
	e := w.job.Executor()
	if err := e.TracePhase(phase, ring, nil); err != nil {
		return nil, nil, err
	}
	if _, err = w.texts(ctx, streams, 16, 4); err != nil {
		return nil, nil, err
	}
	events := ring.Events()
	if err := e.TracePhase("", nil, nil); err != nil || len(events) < len(view.Instructions) {
		return w.division, nil, err
	}
	return w.division, overlapOf(events), nil
}

// span is a time in which something worked.
type span struct{ from, to int64 }

// overlapOf sums the events of a step.
func overlapOf(events []trace.Event) *Overlap {
	var link, cpu, all []span
	for _, e := range events {
		at := span{e.Start, e.End}
		switch {
		case e.Verb == trace.Move && e.Lane.Queue == string(plan.In):
			link = append(link, at)
		case e.Verb == trace.Run && e.Lane.Device == plan.HostName:
			cpu = append(cpu, at)
		}
		if e.Verb != trace.Free {
			all = append(all, at)
		}
	}
	o := &Overlap{Link: seconds(joined(link)), CPU: seconds(joined(cpu))}
	o.Both = o.Link + o.CPU - seconds(joined(append(link, cpu...)))
	if all = joined(all); len(all) > 0 {
		o.Seconds = float64(all[len(all)-1].to-all[0].from) / 1e9
	}
	return o
}

// joined makes spans that overlap one, in order.
func joined(list []span) (out []span) {
	slices.SortFunc(list, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	for _, s := range list {
		if n := len(out) - 1; n >= 0 && s.from <= out[n].to {
			out[n].to = max(out[n].to, s.to)
		} else {
			out = append(out, s)
		}
	}
	return out
}

func seconds(list []span) (sum float64) {
	for _, s := range list {
		sum += float64(s.to-s.from) / 1e9
	}
	return sum
}
