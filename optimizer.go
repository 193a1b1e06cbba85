package spillway

import (
	"spillway/dtype"
	"spillway/executor"
	"spillway/op"
	"spillway/optim"
	"spillway/plan"
	"spillway/planner"
	"spillway/quant"
	"spillway/spec"
	"spillway/train"
)

// optimizer is what the planner must know of the one in the options.
func (o Options) optimizer() (*planner.Optimizer, error) {
	c := o.kept()
	kind, err := c.Kind()
	if err != nil {
		return nil, err
	}
	known := &planner.Optimizer{Rule: kind, Clip: o.Clip || o.Precision == dtype.F16}
	if known.States, err = statesOf(c); err != nil {
		return nil, err
	}
	if coded := c; coded.Storage != quant.Dyn8 && len(coded.States()) > 0 {
		coded.Storage, coded.Codecs = quant.Dyn8, ""
		known.States8Bit, err = statesOf(coded)
	}
	return known, err
}

// kept is the optimizer with the states it keeps now.
func (o Options) kept() optim.Config {
	if o.compressed {
		return o.StatePolicy.Compressed(o.Optimizer)
	}
	return o.Optimizer
}

// stateTier is where the policy wants compressed states to rest; "" leaves it to the
// planner.
func (o Options) stateTier() plan.Tier {
	if !o.compressed {
		return ""
	}
	return map[string]plan.Tier{"device": plan.OnDevice, "host": plan.OnHost}[o.StatePolicy.Home]
}

// statesOf is what an optimizer keeps of a param.
func statesOf(c optim.Config) (func(spec.Param) []op.State, error) {
	keeping, err := c.StatesFor()
	if err != nil {
		return nil, err
	}
	return func(p spec.Param) []op.State { return keeping(p.Name, p.Type.Shape) }, nil
}

// Compressed is the job once its policy has begun, planned by itself; nil where it has
// none or begins with it.
func (j *Job) Compressed() (*Job, error) {
	if j.Options.StatePolicy == (optim.Policy{}) || j.Options.compressed {
		return nil, nil
	}
	return j.Model.Plan(j.Options.compressing())
}

// compress gives a run that holds an executor the means to follow its policy: the job
// is planned again, and weights and states are carried over.
func (j *Job) compress(held **executor.Executor, c train.Config, on *keeper) func(optim.Config) (*executor.Executor, error) {
	return func(optim.Config) (*executor.Executor, error) {
		next, err := j.Model.Plan(j.Options.compressing())
		if err != nil {
			return nil, err
		}
		if on != nil {
			return j.replaceOnDisk(held, c, next, on)
		}
		return j.replace(held, c, func() (*Job, error) { return next, nil })
	}
}
