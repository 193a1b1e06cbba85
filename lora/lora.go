// Package lora attaches low-rank adapters to the products of a model: the base is
// frozen, and beside each chosen weight W a small pair B·A is trained. With the base
// in a 4-bit format this is QLoRA; with lengths of the weights trained apart from
// their directions it is DoRA.
//
// Options say which layers get adapters of which size; they mean what the PEFT library's
// config of the same words means, which FromPEFT and PEFT translate. Attach changes a
// model, Open reads an adapter's folder, Combine makes one adapter of several, and
// Merged is a model's weights with adapters added in.
package lora

import (
	"fmt"
	"math"

	"spillway/dtype"
	"spillway/hf"
	"spillway/nn"
	"spillway/quant"
)

// AllLinear as the only target chooses every product but the output one.
const AllLinear = "all-linear"

// Bias says which biases of the model are trained beside the adapters.
type Bias string

// The biases that can be trained. The zero value is NoBias.
const (
	NoBias    Bias = "none"
	AllBiases Bias = "all"
	LoRAOnly  Bias = "lora_only" // those of layers with adapters
)

// Options of the adapters.
type Options struct {
	// Targets are names of layers, whole or their last parts ("q_proj"), or AllLinear.
	Targets []string
	// Pattern, instead of Targets, is a regular expression of whole names.
	TargetPattern string
	// Exclude, or the pattern instead of it, names layers that get none all the same.
	Exclude        []string
	ExcludePattern string
	// Layers, of targets given by the last parts of their names, are only those with
	// these numbers; none is all. LayersPattern are the names of the lists they are
	// counted in; none is any list.
	Layers        []int
	LayersPattern []string

	Rank    int64
	Alpha   float64 // strength: the addition is scaled by Alpha/Rank
	Dropout float64 // of the adapters' input
	// RankPattern and AlphaPattern are other ranks and strengths, by patterns of the last
	// parts of names; the first in alphabetical order counts.
	RankPattern  map[string]int64
	AlphaPattern map[string]float64
	// RankStabilized scales by Alpha/√Rank instead.
	RankStabilized bool
	// DoRA trains the lengths of the adapted weights apart from their directions.
	DoRA bool
	// AddBias gives adapters a bias of their own.
	LoRABias bool

	Bias Bias
	// Save names modules, by how their names end, that are trained whole and kept with
	// the adapters: "lm_head".
	ModulesToSave []string
	// Init is how adapters start; "" is hf.InitDefault.
	Init hf.AdapterInit

	// Base is the format all base products rest in, the output one and those of Save
	// excepted: NF4 or FP4 for QLoRA. Zero: as they are.
	Base dtype.Type
	// Outliers, with a base of RowI8, multiplies whole numbers as LLM.int8 does, and
	// inputs of this magnitude or more apart; 6 is usual. 0 multiplies by decoded weights.
	Outliers float64
}

// Attach changes the model: it freezes all its params but those the options say are
// trained, and gives the chosen layers adapters, whose names it returns in the order of
// the model. A fresh adapter adds nothing, unless it is to start at random.
func Attach(m nn.Model, o Options) ([]string, error) {
	names, err := o.attach(m)
	if err != nil {
		return nil, fmt.Errorf("attaching adapters: %w", err)
	}
	_, err = nn.Bind(m)
	return names, err
}

func (o Options) attach(m nn.Model) ([]string, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	params, err := nn.Bind(m)
	if err != nil {
		return nil, err
	}
	all, err := linears(m)
	if err != nil {
		return nil, err
	}
	chosen, err := o.choose(all)
	if err != nil {
		return nil, err
	}
	saved, err := o.savedParams(m)
	if err != nil {
		return nil, err
	}
	o.freeze(params, chosen, saved)
	for _, p := range all {
		if !p.isHead && o.Base != dtype.Invalid && !saved[p.weight] {
			p.weight.Storage, p.weight.OutlierThreshold = o.Base, o.Outliers
		}
	}
	return o.add(chosen)
}

// add gives layers their adapters.
func (o Options) add(chosen []linear) ([]string, error) {
	sizes, err := o.rankAndAlpha()
	if err != nil {
		return nil, err
	}
	names := make([]string, len(chosen))
	for i, p := range chosen {
		rank, alpha := sizes(p.name)
		names[i], *p.adapter = p.name, o.adapter(p, rank, o.scale(rank, alpha))
	}
	return names, nil
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
	case (o.TargetPattern == "") == (len(o.Targets) == 0):
		return fmt.Errorf("give targets such as q_proj, or %s, or a pattern", AllLinear)
	case !(o.Outliers >= 0) || o.Outliers > 0 && o.Base != quant.RowI8:
		return fmt.Errorf("outliers from %v on beside a base of %v; give a threshold above 0 and a base of %v", o.Outliers, o.Base, quant.RowI8)
	case o.DoRA && o.LoRABias:
		return fmt.Errorf("adapters of DoRA can have no bias of their own")
	}
	return o.checkWords()
}

// checkWords refuses words that mean nothing.
func (o Options) checkWords() error {
	switch o.Bias {
	case "", NoBias, AllBiases, LoRAOnly:
	default:
		return fmt.Errorf("bias is %q; known are %s, %s and %s", o.Bias, NoBias, AllBiases, LoRAOnly)
	}
	switch o.Init {
	case "", hf.InitDefault, hf.InitGaussian, hf.InitRandom:
		return nil
	}
	return fmt.Errorf("adapters cannot start as %q; known are %s, %s and %s", o.Init, hf.InitDefault, hf.InitGaussian, hf.InitRandom)
}

// Scale is the factor of the adapters' addition where no pattern says otherwise.
func (o Options) Scale() float64 { return o.scale(o.Rank, o.Alpha) }

func (o Options) scale(rank int64, alpha float64) float64 {
	if o.RankStabilized {
		return alpha / math.Sqrt(float64(rank))
	}
	return alpha / float64(rank)
}

// adapter makes a fresh one. The lengths of DoRA start as those of the weights, which is
// for whoever knows them to say.
func (o Options) adapter(p linear, rank int64, scale float64) *nn.Adapter {
	within := func(n int64) nn.Init { return nn.Uniform(1 / math.Sqrt(float64(n))) }
	down, up := within(p.in), nn.Constant(0)
	switch o.Init {
	case hf.InitGaussian:
		down = nn.Normal(1 / float64(rank))
	case hf.InitRandom:
		up = within(rank)
	}
	a := &nn.Adapter{A: nn.NewParam(down, rank, p.in), B: nn.NewParam(up, p.out, rank), Scale: scale, Dropout: o.Dropout}
	if o.LoRABias {
		a.Bias = nn.NewParam(up, p.out)
	}
	if o.DoRA {
		a.Magnitude = nn.NewParam(nn.Magnitudes(scale, p.outIn), p.out)
	}
	return a
}
