package main

import (
	"fmt"

	"spillway"
	"spillway/planner/strategy"
)

// The rule that is held against: Overflow's, as its code has it. It looks at the
// bytes of the weights and of the GPUs, and at nothing else.
const (
	evalNeed, trainNeed = 1.5, 3.0 // memory needed, in weights
	enoughShare         = 0.8      // of a GPU, or of all
	parallelShare       = 0.5      // of a GPU, below which data parallel is considered
)

// outcome is what the rule picks and what would come of it, carried out as well as
// Spillway can.
type outcome struct {
	Name    string
	Fits    bool
	Seconds float64
}

// ruleOfThumb is the rule.
func ruleOfThumb(weights, gpu float64, devices int, train bool) string {
	need := evalNeed * weights
	if train {
		need = trainNeed * weights
	}
	switch {
	case devices > 1 && weights < parallelShare*gpu && !train:
		return "data parallel"
	case need < enoughShare*gpu:
		return "standard"
	case weights < enoughShare*gpu:
		return "checkpointing"
	case devices > 1 && weights < enoughShare*gpu*float64(devices):
		return "model parallel"
	}
	return "cpu offload"
}

// ruleKey is what a plan by the rule depends on: the size of the GPUs is not in it.
type ruleKey struct {
	name    string
	task    spillway.Task
	devices int
}

// rule plans what the rule picks, with as much memory as it takes.
func (t *table) rule(c cell) (outcome, error) {
	key := ruleKey{ruleOfThumb(2*float64(t.params), float64(c.GiB)*(1<<30), c.Devices, c.Task != spillway.Infer), c.Task, c.Devices}
	job, known := t.byRule.Load(key)
	if !known {
		o := t.options(c)
		o.Choose = chosen(key.name, c.Devices)
		const boundless = 1 << 52 // bytes: more than any plan takes
		for i := range o.Machine.Devices {
			o.Machine.Devices[i].Usable, o.Machine.Devices[i].Memory = boundless, boundless
		}
		o.Machine.Host.Usable, o.Machine.Host.Memory = boundless, boundless
		var err error
		if job, err = t.model.Plan(o); err != nil {
			return outcome{}, fmt.Errorf("%s, %s by the rule: %w", t.name, key.name, err)
		}
		t.byRule.Store(key, job)
	}
	j := job.(*spillway.Run)
	return outcome{key.name, peak(j) <= int64(t.options(c).Machine.Devices[0].Usable), j.Plan.Forecast.StepSeconds}, nil
}

// chosen is the choice of one of the rule's five cases.
func chosen(name string, devices int) func(slabs, blocks int) strategy.Choice {
	switch name {
	case "checkpointing":
		return strategy.Uniform(false, false, strategy.SaveNone, 0)
	case "cpu offload": // weights come one block at a time, before it runs; all else stays on the GPU
		return strategy.Uniform(true, false, strategy.SaveAll, 1)
	}
	return func(slabs, blocks int) strategy.Choice {
		c := strategy.Uniform(false, false, strategy.SaveAll, 0)(slabs, blocks)
		switch name {
		case "data parallel":
			c.Devices = devices
		case "model parallel":
			c.Devices, c.Split = devices, make([]int, blocks)
			for i := range c.Split {
				c.Split[i] = i * devices / blocks
			}
		}
		return c
	}
}
