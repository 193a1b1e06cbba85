package spillway

import (
	"spillway/dtype"
	"spillway/op"
	"spillway/optim"
	"spillway/planner"
	"spillway/spec"
)

// optimizer is what the planner must know of the one in the options.
func (o PlanOptions) optimizer() (*planner.Optimizer, error) {
	kind, attr, err := o.Optimizer.Op()
	if err != nil {
		return nil, err
	}
	known := &planner.Optimizer{Rule: kind, Attr: attr, Clip: o.Clip || o.Precision == dtype.F16}
	if known.States, err = statesOf(o.Optimizer); err != nil {
		return nil, err
	}
	if coded := o.Optimizer; coded.Storage != dtype.Dyn8 && len(coded.States()) > 0 {
		coded.Storage, coded.Codecs = dtype.Dyn8, ""
		known.Coded, err = statesOf(coded)
	}
	return known, err
}

// statesOf is what an optimizer keeps of a param.
func statesOf(c optim.Config) (func(spec.Param) []op.State, error) {
	keeping, err := c.Keeping()
	if err != nil {
		return nil, err
	}
	return func(p spec.Param) []op.State { return keeping(p.Name, p.Type.Shape) }, nil
}
