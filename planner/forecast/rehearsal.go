package forecast

import (
	"slices"
	"time"

	"spillway/device/sim"
	"spillway/graph"
	"spillway/machine"
	"spillway/op"
	"spillway/plan"
	"spillway/planner/goal"
)

// Rehearse has a device at hand run each program of a plan, one call after the other, and forecasts the plan by what that
// took. It returns a site for further forecasts of the plan. The search compares plans by their calls: there are too many to run.
func Rehearse(p *plan.Plan, site goal.Site) (goal.Site, error) {
	r, can := site.Device.Calls.(machine.Rehearser)
	if !can || p.Cache != nil || p.Forecast == nil {
		return site, nil
	}
	found := &goal.Rehearsal{Passes: map[string]time.Duration{}}
	done := map[int]bool{}
	renewed := 0
	for i := range p.Instructions {
		s := &p.Instructions[i]
		switch {
		case !onDevice(p.Devices[s.Device].Name):
		case s.Verb == plan.Update:
			renewed += len(p.Optimizer.Spans(&p.Slabs[s.Slab], p.Slabs[s.Slab].Pieces[s.Piece]))
		case s.Verb == plan.Run:
			prog := &p.Programs[s.Program]
			for _, n := range prog.Graph.Nodes {
				if n.Attr.Prob > 0 {
					renewed++
				}
			}
			if done[s.Program] {
				continue
			}
			done[s.Program] = true
			pass, calls := passOf(prog, p.Captured)
			if took, known := r.Rehearse(pass); known {
				found.Passes[sim.PassKey(calls)] = took
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
	f, err := Of(p, site)
	if err == nil {
		f.PeakBytes, p.Forecast = p.Forecast.PeakBytes, f
	}
	return site, err
}

// onDevice says whether a device of a plan is one that computes blocks: neither a disk nor the CPU next to it.
func onDevice(name string) bool { return name != plan.DiskName && name != plan.HostName }

// passOf is what a program calls, with its values where the plan has them.
func passOf(prog *plan.Program, captured bool) (pass machine.Pass, calls []op.Call) {
	pass = machine.Pass{Scratch: prog.Frame, Work: prog.Workspace, Captured: captured}
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
		pass.Calls, calls = append(pass.Calls, c), append(calls, c.Call)
	}
	return pass, calls
}

// sharedRegions are those that one block after the other uses: the batch, what the block before has just made, and where the
// next one looks for it.
var sharedRegions = []plan.Region{plan.InBatch, plan.InConst, plan.InCarry, plan.OutCarry, plan.InGradOutput, plan.OutGradInput, plan.OutResult, plan.OutPartial}
