package run

import (
	"fmt"
	"reflect"
	"slices"

	"spillway/plan"
	"spillway/planner/strategy"
	"spillway/units"
)

// checkStrategy refuses a strategy that there is not, or that something else decides too.
func (o Options) checkStrategy() error {
	if o.Strategy == "" {
		return nil
	}
	if _, err := strategy.Find(o.Strategy); err != nil {
		return err
	}
	switch demands := strategy.Demands(o.Strategy); {
	case demands.Weights == plan.OnDisk && o.Disk == "" && len(o.On) > 0:
		return fmt.Errorf("strategy %s needs a folder to offload to; name one in Disk", o.Strategy)
	case demands.Weights != "" && o.Bounds.SaveBelow+o.Bounds.StayBelow > 0:
		return fmt.Errorf("strategy %s decides what is recomputed or leaves the device, and so do bounds of %v and %v; keep one", o.Strategy, o.Bounds.SaveBelow, o.Bounds.StayBelow)
	case !reflect.DeepEqual(o.Constraints, strategy.Constraints{}):
		return fmt.Errorf("strategy %s is a set of constraints, and others are given too; keep one", o.Strategy)
	}
	return nil
}

// constraints are those of the strategy, or those given.
func (o Options) constraints() strategy.Constraints {
	if o.Strategy == "" {
		return o.Constraints
	}
	c := strategy.Demands(o.Strategy)
	if !o.Task.Trains() {
		c = c.Inference()
	}
	return c
}

// onOneDevice says whether the strategy uses one device, however many there are.
func (o Options) onOneDevice() bool {
	return o.Strategy != "" && strategy.Demands(o.Strategy).Parallelism == ""
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
	if c := q.Goal.Constraints; c.Parallelism == strategy.ZeRO1 || c.Parallelism == strategy.ZeRO2 {
		return fmt.Errorf("%s: the weights take %v, the threshold allows %v on each device; raise it or take zero-3", c.Parallelism, units.Bytes(weights), units.Bytes(limit))
	}
	q.Goal.Bounds.Without = append(slices.Clone(q.Goal.Bounds.Without), strategy.ZeRO1, strategy.ZeRO2)
	return nil
}
