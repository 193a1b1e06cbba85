package run

import (
	"fmt"
	"reflect"
	"slices"

	"spillway/plan"
	"spillway/planner"
	"spillway/units"
)

// Strategies that Options.Strategy may name. Those before "data parallel" use one device.
var Strategies = []string{"standard", "checkpointing", "optimizer offload", "cpu offload", "disk offload", "data parallel", "zero-1", "zero-3", "model parallel", "pipeline"}

// constraintsOf is what strategies demand of the planner.
var constraintsOf = map[string]planner.Constraints{
	"standard":          {Weights: plan.OnDevice, State: plan.OnDevice, Activations: planner.Saved},
	"checkpointing":     {Weights: plan.OnDevice, State: plan.OnDevice, Activations: planner.Recomputed},
	"optimizer offload": {Weights: plan.OnDevice, State: plan.OnHost},
	"cpu offload":       {Weights: plan.OnHost, State: plan.OnHost},
	"disk offload":      {Weights: plan.OnDisk, State: plan.OnDisk},
	"zero-1":            {Parallelism: planner.ZeRO1},
	"data parallel":     {Parallelism: planner.ZeRO2},
	"zero-3":            {Parallelism: planner.ZeRO3},
	"model parallel":    {Parallelism: planner.ModelParallel},
	"pipeline":          {Parallelism: planner.Pipeline},
}

// checkStrategy refuses a strategy that there is not, or that something else decides too.
func (o Options) checkStrategy() error {
	switch c := constraintsOf[o.Strategy]; {
	case o.Strategy == "":
		return nil
	case !slices.Contains(Strategies, o.Strategy):
		return fmt.Errorf("there is no strategy %q; there are %q", o.Strategy, Strategies)
	case c.Weights == plan.OnDisk && o.Disk == "" && len(o.On) > 0:
		return fmt.Errorf("strategy %s needs a folder to offload to; name one in Disk", o.Strategy)
	case c.Weights != "" && o.Bounds.SaveBelow+o.Bounds.StayBelow > 0:
		return fmt.Errorf("strategy %s decides what is recomputed or leaves the device, and so do bounds of %v and %v; keep one", o.Strategy, o.Bounds.SaveBelow, o.Bounds.StayBelow)
	case !reflect.DeepEqual(o.Constraints, planner.Constraints{}):
		return fmt.Errorf("strategy %s is a set of constraints, and others are given too; keep one", o.Strategy)
	}
	return nil
}

// constraints are those of the strategy, or those given.
func (o Options) constraints() planner.Constraints {
	if o.Strategy == "" {
		return o.Constraints
	}
	c := constraintsOf[o.Strategy]
	if !o.Task.Trains() { // nothing is saved for a backward, no state is there, and a pipeline is an order of training
		c.State, c.Activations = "", ""
		if c.Parallelism == planner.Pipeline {
			c.Parallelism = planner.ModelParallel
		}
	}
	return c
}

// onOneDevice says whether the strategy uses one device, however many there are.
func (o Options) onOneDevice() bool {
	return o.Strategy != "" && constraintsOf[o.Strategy].Parallelism == ""
}

// boundDataParallel rules ZeRO-1 and ZeRO-2 out where the weights are too large a share
// of a device.
func (q *question) boundDataParallel() error {
	o := q.options
	if o.DataParallelThreshold == 0 || q.Site.Devices < 2 {
		return nil
	}
	m, err := q.Trace(max(q.MicroBatchSize, 1), q.Seq)
	if err != nil {
		return err
	}
	var weights int64
	for _, p := range m.Params {
		weights += p.Type.Bytes()
	}
	limit := o.DataParallelThreshold * float64(memoryOf(q.Site).Devices[0])
	if float64(weights) < limit {
		return nil
	}
	if c := q.Goal.Constraints; c.Parallelism == planner.ZeRO1 || c.Parallelism == planner.ZeRO2 {
		return fmt.Errorf("%s: the weights take %v, the threshold allows %v on each device; raise it or take zero-3", c.Parallelism, units.Bytes(weights), units.Bytes(limit))
	}
	q.Goal.Bounds.Without = append(slices.Clone(q.Goal.Bounds.Without), planner.ZeRO1, planner.ZeRO2)
	return nil
}
