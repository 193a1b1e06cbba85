package planner

import (
	"fmt"
	"slices"

	"spillway/plan"
)

// Updater is who runs the optimizer.
type Updater string

// The updaters.
const (
	ByDevice Updater = "device" // that has the gradients; state that rests elsewhere comes to it
	ByCPU    Updater = "host"   // the host's processor: all that is trained, where its state rests
	ByBoth   Updater = "split"  // the host some of it
)

// Updaters lists them.
var Updaters = []Updater{ByDevice, ByCPU, ByBoth}

// checkUpdates refuses updates by the host that cannot be.
func (i Constraints) checkUpdates(g Goal) error {
	switch {
	case i.Updates == "":
		return nil
	case !slices.Contains(Updaters, i.Updates):
		return fmt.Errorf("%q cannot update; there are %q", i.Updates, Updaters)
	case g.Optimizer == nil:
		return fmt.Errorf("nothing is trained, so nobody updates; leave %q away", i.Updates)
	case i.Updates != ByDevice && g.Optimizer.Rule.WholeParam():
		return fmt.Errorf("%s updates whole params, which the host cannot; leave %q away", g.Optimizer.Rule, i.Updates)
	case i.Updates != ByDevice && i.State != "" && i.State != plan.OnHost:
		return fmt.Errorf("the host updates what rests in host memory, and optimizer state is to rest on %s; leave one away", i.State)
	}
	return nil
}

// updated has the updates of a choice run where they are to.
func (s *search) constrainUpdates(c Choice) Choice {
	who := s.b.goal.Constraints.Updates
	if who == "" || !s.b.training() {
		return c
	}
	if who == ByBoth && !s.cpuUpdatesSome(c) {
		every := false
		for k := range c.UpdatedByCPU {
			if s.b.slabs.list[k].Elements > 0 {
				every = !every
				c.UpdatedByCPU[k] = every
			}
		}
	}
	for k := range c.UpdatedByCPU {
		c.UpdatedByCPU[k] = who == ByCPU || who == ByBoth && c.UpdatedByCPU[k]
		if c.UpdatedByCPU[k] {
			c.OffloadedState[k], c.OnDisk[k] = true, false
		}
	}
	return c
}

// someHosted says whether a choice has some of what is trained updated by the host, and
// not all.
func (s *search) cpuUpdatesSome(c Choice) bool {
	yes, no := false, false
	for k, slab := range s.b.slabs.list {
		if slab.Elements > 0 {
			yes, no = yes || c.UpdatedByCPU[k], no || !c.UpdatedByCPU[k]
		}
	}
	return yes && no
}

// happenedToUpdates looks at the devices that run them.
func (i Constraints) updatesSatisfied(p *plan.Plan) error {
	host, device := 0, 0
	for _, s := range p.Instructions {
		switch {
		case s.Verb != plan.Update:
		case p.Devices[s.Device].Name == HostName:
			host++
		default:
			device++
		}
	}
	if i.Updates == ByDevice && host > 0 || i.Updates == ByCPU && device > 0 || i.Updates == ByBoth && (host == 0 || device == 0) {
		return fmt.Errorf("updates were to run on %s, the plan has %d on the host and %d on devices", i.Updates, host, device)
	}
	return nil
}
