package forecast

import (
	"slices"
	"time"

	"spillway/device/sim"
	"spillway/dtype"
	"spillway/graph"
	"spillway/machine"
	"spillway/op"
	"spillway/plan"
	"spillway/planner/goal"
	"spillway/shape"
)

// Rehearse has a device at hand run each program and each update of a plan, one call after the other, and forecasts the plan by what that
// took. It returns a site for further forecasts of the plan. The search compares plans by their calls: there are too many to run.
func Rehearse(p *plan.Plan, site goal.Site) (goal.Site, error) {
	if p.Cache != nil || p.Forecast == nil {
		return site, nil
	}
	site, err := rehearsed(p, site)
	if err != nil || site.Rehearsed == nil {
		return site, err
	}
	f, err := Of(p, site)
	if err == nil {
		compareTo(p, f.StepSeconds)
		f.PeakBytes, p.Forecast = p.Forecast.PeakBytes, f
	}
	return site, err
}

// compareTo has the plans that were not taken stand to a new forecast of this one as they stood to that by calls: what calls take
// in each other's company, they take in all of them. A lower bound stays one.
func compareTo(p *plan.Plan, seconds float64) {
	p.Rejected = slices.Clone(p.Rejected)
	for i := range p.Rejected {
		if o := &p.Rejected[i]; !o.LowerBound {
			o.StepSeconds *= seconds / p.Forecast.StepSeconds
		}
	}
}

// Step forecasts a step of a plan to generate. A CPU at hand runs each of its programs first, one call after the other: its
// steps are short, and what one call leaves in its caches the next one finds there.
func Step(p *plan.Plan, site goal.Site) (*plan.Forecast, error) {
	if site.Device.Kind == machine.CPU {
		var err error
		if site, err = rehearsed(p, site); err != nil {
			return nil, err
		}
	}
	return Of(p, site)
}

// rehearsed is a site that knows what the programs and updates of a plan take, where a device at hand can run them.
func rehearsed(p *plan.Plan, site goal.Site) (goal.Site, error) {
	r, can := site.Device.Calls.(machine.Rehearser)
	if !can {
		return site, nil
	}
	found := &goal.Rehearsal{Passes: map[string]time.Duration{}}
	run := func(pass machine.Pass) {
		calls := make([]op.Call, len(pass.Calls))
		for i, c := range pass.Calls {
			calls[i] = c.Call
		}
		key := sim.PassKey(calls)
		if _, known := found.Passes[key]; known {
			return
		}
		if took, known := r.Rehearse(pass); known {
			found.Passes[key] = took
		}
	}
	done, renewed := map[int]bool{}, 0
	for i := range p.Instructions {
		s := &p.Instructions[i]
		switch {
		case !onDevice(p.Devices[s.Device].Name):
		case s.Verb == plan.Update:
			spans := p.Optimizer.Spans(&p.Slabs[s.Slab], p.Slabs[s.Slab].Pieces[s.Piece])
			renewed += len(spans)
			pass, err := updateOf(p.Optimizer, spans, p.Captured)
			if err != nil {
				return site, err
			}
			run(pass)
		case s.Verb == plan.Run:
			prog := &p.Programs[s.Program]
			for _, n := range prog.Graph.Nodes {
				if n.Attr.Prob > 0 {
					renewed++
				}
			}
			if !done[s.Program] {
				done[s.Program] = true
				run(passOf(prog, p.Captured))
			}
		}
	}
	if p.Captured {
		found.Replay, _ = r.Replay(p.Launches(), renewed)
	}
	if len(found.Passes) == 0 && found.Replay == 0 {
		return site, nil
	}
	site.Rehearsed = found
	return site, nil
}

// onDevice says whether a device of a plan is one that computes blocks: neither a disk nor the CPU next to it.
func onDevice(name string) bool { return name != plan.DiskName && name != plan.HostName }

// passOf is what a program calls, with its values where the plan has them.
func passOf(prog *plan.Program, captured bool) machine.Pass {
	pass := machine.Pass{Scratch: prog.Frame, Work: prog.Workspace, Captured: captured}
	places, data := map[plan.Place]int{}, map[graph.Value][]byte{}
	for _, in := range graph.Ports(prog.Graph.Inputs, graph.Const) {
		data[in.Value] = in.Data
	}
	of := func(v graph.Value) int {
		place := prog.Places[v]
		at, known := places[place]
		if !known {
			at = len(pass.Places)
			places[place] = at
			pass.Places = append(pass.Places, machine.PassPlace{Scratch: place.Region == plan.InFrame, Offset: place.Offset, Shared: slices.Contains(sharedRegions, place.Region), Data: data[v]})
			if !pass.Places[at].Scratch {
				pass.Places[at].Offset = 0
			}
		}
		pass.Places[at].Bytes = max(pass.Places[at].Bytes, prog.Graph.Type(v).Bytes())
		return at
	}
	for _, n := range prog.Graph.Nodes {
		c := machine.PassCall{Call: prog.Graph.Call(n)}
		for _, v := range slices.Concat(n.In, n.Out) {
			c.Places = append(c.Places, of(v))
		}
		pass.Calls = append(pass.Calls, c)
	}
	return pass
}

// updateOf is the update of a piece: all that it reads and writes is its own but the factor of clipping.
func updateOf(o *plan.Optimizer, spans []plan.Span, captured bool) (machine.Pass, error) {
	clip := machine.PassPlace{Bytes: op.Type{DType: dtype.F32, Shape: shape.Shape{2}}.Bytes(), Shared: true}
	pass := machine.Pass{Places: []machine.PassPlace{clip}, Captured: captured}
	for _, span := range spans {
		call, err := o.Call(span)
		if err != nil {
			return pass, err
		}
		own := func(t op.Type) int {
			pass.Places = append(pass.Places, machine.PassPlace{Bytes: t.Bytes()})
			return len(pass.Places) - 1
		}
		c := machine.PassCall{Call: call}
		for i, t := range call.In {
			at := 0
			if i < len(call.In)-1 {
				at = own(t)
			}
			c.Places = append(c.Places, at)
		}
		in := call.InPlace()
		for i, t := range call.Out {
			if i < len(in) {
				c.Places = append(c.Places, c.Places[in[i]])
			} else {
				c.Places = append(c.Places, own(t))
			}
		}
		pass.Calls = append(pass.Calls, c)
	}
	return pass, nil
}

// sharedRegions are those that one block after the other uses: the batch, what the block before has just made, and where the
// next one looks for it.
var sharedRegions = []plan.Region{plan.InBatch, plan.InConst, plan.InCarry, plan.OutCarry, plan.InGradOutput, plan.OutGradInput, plan.OutResult, plan.OutPartial}
