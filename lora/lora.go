// Package lora attaches low-rank adapters to the products of a model: the base is
// frozen, and beside each chosen weight W a small pair B·A is trained. With the base
// in a 4-bit format this is QLoRA.
package lora

import (
	"fmt"
	"math"

	"spillway/dtype"
	"spillway/nn"
)

// AllLinear as the only target chooses every product but the output one.
const AllLinear = "all-linear"

// Options of the adapters.
type Options struct {
	// Targets are names of layers, whole or their last parts ("q_proj"), or AllLinear.
	Targets []string
	// Pattern, instead of Targets, is a regular expression of whole names.
	Pattern string

	Rank    int64
	Alpha   float64 // strength: the addition is scaled by Alpha/Rank
	Dropout float64 // of the adapters' input
	// RankStabilized scales by Alpha/√Rank instead.
	RankStabilized bool

	// Base is the format all base products rest in, the output one excepted: NF4
	// or FP4 for QLoRA. Zero: as they are.
	Base dtype.Type
}

// Attach changes the model: it freezes all its params and gives the chosen layers
// adapters, whose names it returns in the order of the model. A fresh adapter adds
// nothing, since its B is zero.
func Attach(m nn.Model, o Options) ([]string, error) {
	if err := o.check(); err != nil {
		return nil, fmt.Errorf("attaching adapters: %w", err)
	}
	params, err := nn.Bind(m)
	if err != nil {
		return nil, err
	}
	all, err := products(m)
	if err != nil {
		return nil, err
	}
	chosen, err := o.choose(all)
	if err != nil {
		return nil, fmt.Errorf("attaching adapters: %w", err)
	}
	for _, p := range params {
		p.Frozen = true
	}
	for _, p := range all {
		if !p.output && o.Base != dtype.Invalid {
			p.weight.Storage = o.Base
		}
	}
	names := make([]string, len(chosen))
	for i, p := range chosen {
		names[i], *p.adapter = p.name, o.adapter(p.in, p.out)
	}
	_, err = nn.Bind(m)
	return names, err
}

func (o Options) check() error {
	switch {
	case o.Rank < 1:
		return fmt.Errorf("rank is %d, want at least 1", o.Rank)
	case !(o.Alpha > 0) || math.IsInf(o.Alpha, 0):
		return fmt.Errorf("alpha is %v, want a number above 0", o.Alpha)
	case !(o.Dropout >= 0 && o.Dropout < 1):
		return fmt.Errorf("dropout is %v, want 0 ≤ p < 1", o.Dropout)
	case o.Base != dtype.Invalid && !o.Base.Float():
		return fmt.Errorf("the base cannot rest as %v; use nf4, fp4 or a plain real type", o.Base)
	case (o.Pattern == "") == (len(o.Targets) == 0):
		return fmt.Errorf("give targets such as q_proj, or %s, or a pattern", AllLinear)
	}
	return nil
}

// Scale is the factor of the adapters' addition.
func (o Options) Scale() float64 {
	if o.RankStabilized {
		return o.Alpha / math.Sqrt(float64(o.Rank))
	}
	return o.Alpha / float64(o.Rank)
}

func (o Options) adapter(in, out int64) *nn.Adapter {
	return &nn.Adapter{
		A:     nn.NewParam(nn.Uniform(1/math.Sqrt(float64(in))), o.Rank, in),
		B:     nn.NewParam(nn.Constant(0), out, o.Rank),
		Scale: o.Scale(), Dropout: o.Dropout,
	}
}
