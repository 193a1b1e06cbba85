package run

import (
	"slices"

	"spillway/dtype"
	"spillway/op"
	"spillway/optim"
	"spillway/plan"
	"spillway/planner"
	"spillway/planner/strategy"
	"spillway/quant"
	"spillway/shape"
	"spillway/spec"
)

// goal is what the planner is to achieve.
func (o Options) goal() (g planner.Goal, err error) {
	g = planner.Goal{MicroBatches: o.MicroBatches, Constraints: o.Constraints, Bounds: o.Bounds, Watch: o.Watch}
	if o.Strategy != "" {
		g.Constraints = strategy.Demands(o.Strategy)
	}
	if !o.Task.Trains() {
		if o.Strategy != "" {
			g.Constraints = g.Constraints.Inference()
		}
		return g, nil
	}
	c := o.Optimizer
	if o.compressed {
		c = o.StatePolicy.Compressed(c)
		if g.Constraints.State == "" {
			g.Constraints.State = map[string]plan.Tier{"device": plan.OnDevice, "host": plan.OnHost}[o.StatePolicy.Home]
		}
	}
	g.Master, g.Optimizer = o.Precision != dtype.F32 && !o.Pure, &planner.Optimizer{Clip: o.Clip > 0 && !o.Held || o.Precision == dtype.F16, Held: o.Held, Averaged: o.Average > 0}
	if g.Optimizer.Rule, err = c.Kind(); err != nil {
		return g, err
	}
	if g.Optimizer.States, err = o.statesOf(c); err != nil {
		return g, err
	}
	if coded := c; coded.Storage != quant.Dyn8 && len(coded.States()) > 0 {
		coded.Storage, coded.Codecs = quant.Dyn8, ""
		if g.Optimizer.States8Bit, err = o.statesOf(coded); err != nil {
			return g, err
		}
	}
	g.CanonicalSums = o.CanonicalSums
	if len(o.Groups) > 0 {
		for _, group := range o.Groups {
			if _, err := group.Of(o.Optimizer); err != nil {
				return g, err
			}
		}
		if g.Group, err = optim.GroupOf(o.Groups, o.layers); err != nil {
			return g, err
		}
	}
	g.Decay, err = optim.Decays(o.NoDecay, o.Groups, o.layers)
	return g, err
}

// StatesFor lists what is stored of a param next to its weights and master weights: a gradient that
// is held, the states of an optimizer, an average of the weights.
func (o Options) StatesFor(c optim.Config) (func(param string, s shape.Shape) []op.State, error) {
	states, err := c.StatesFor(o.layers)
	if err != nil {
		return nil, err
	}
	if o.StateTypes != nil {
		states = o.withTypes(c, states)
	}
	return func(param string, s shape.Shape) (list []op.State) {
		f32 := op.Type{DType: dtype.F32, Shape: s}
		if o.Held {
			list = append(list, op.State{Name: plan.HeldGradient, Type: f32})
		}
		list = append(list, states(param, s)...)
		if o.Average > 0 {
			list = append(list, op.State{Name: plan.Average, Type: f32})
		}
		return list
	}, nil
}

// withTypes has the states in the types that StateTypes says; those that cannot be stay as they are, which
// the plan shows.
func (o Options) withTypes(c optim.Config, states func(string, shape.Shape) []op.State) func(string, shape.Shape) []op.State {
	return func(param string, s shape.Shape) []op.State {
		list := states(param, s)
		for i := range list {
			t := o.StateTypes(param, list[i].Name)
			if as, err := c.StoredAs(list[i].Name, t); t != dtype.Invalid && err == nil {
				list[i].Type.DType = as
			}
		}
		return list
	}
}

// statesOf gives the states that an optimizer has of a param.
func (o Options) statesOf(c optim.Config) (func(spec.Param) []op.State, error) {
	states, err := o.StatesFor(c)
	if err != nil {
		return nil, err
	}
	return func(p spec.Param) []op.State {
		return Statistic(p.Momentum, states(p.Name, p.Type.Shape))
	}, nil
}

// Statistic is what of the states a running statistic of a momentum has, which no rule updates; params
// of no momentum have all.
func Statistic(momentum float64, states []op.State) []op.State {
	if momentum == 0 {
		return states
	}
	return slices.DeleteFunc(states, func(s op.State) bool { return s.Name != plan.HeldGradient && s.Name != plan.Average })
}
