// Package lora attaches low-rank adapters to the linear layers of a model: the base is
// frozen, and for each chosen weight W a small pair of matrices is trained, whose product
// B·A is added to W. With a quantized base this is QLoRA; where the magnitudes of the
// weights are trained apart from their directions it is DoRA.
//
// Options say which layers get adapters of which rank. They mean what the config of the
// PEFT library means; FromPEFT and PEFT translate. Attach changes a model, Open reads an
// adapter's folder, Combine makes one adapter of several, and Merged is a model's weights
// with adapters added in.
package lora

import (
	"fmt"
	"math"
	"slices"

	"spillway/dtype"
	"spillway/hf"
	"spillway/nn"
	"spillway/quant"
)

// AllLinear as the only target chooses every linear layer but lm_head.
const AllLinear = "all-linear"

// Bias says which biases of the model are trained in addition to the adapters.
type Bias string

// The biases that can be trained. The zero value is NoBias.
const (
	NoBias    Bias = "none"
	AllBiases Bias = "all"
	LoRAOnly  Bias = "lora_only" // those of layers with adapters
)

// Options of the adapters.
type Options struct {
	// Targets names layers, by whole names or their last parts ("q_proj"), or is AllLinear.
	Targets []string
	// TargetPattern, instead of Targets, is a regular expression of whole names.
	TargetPattern string
	// Exclude names layers that get no adapter though Targets names them;
	// ExcludePattern, instead of it, is a regular expression of whole names.
	Exclude        []string
	ExcludePattern string
	// Layers are the numbers of the layers that get adapters; none means all. A target
	// given by its whole name gets one in any case. LayersPattern names the lists of the
	// model that are counted ("layers"); none means any list.
	Layers        []int
	LayersPattern []string

	Rank    int64
	Alpha   float64 // LoRA alpha: what adapters add is scaled by Alpha/Rank
	Dropout float64 // of the adapters' input
	// RankPattern and AlphaPattern give some layers another rank or alpha, by patterns of
	// how their names end; of several that match, the first in alphabetical order counts.
	RankPattern  map[string]int64
	AlphaPattern map[string]float64
	// RankStabilized scales by Alpha/√Rank instead.
	RankStabilized bool
	// DoRA trains the magnitudes of the adapted weights apart from their directions.
	DoRA bool
	// LoRABias gives adapters a bias of their own.
	LoRABias bool

	Bias Bias
	// ModulesToSave names modules, by how their names end, that are trained in full and
	// saved with the adapters: "lm_head".
	ModulesToSave []string
	// Init is how adapters start; "" is hf.InitDefault.
	Init hf.AdapterInit

	// Base is the type the frozen linear weights are stored in, lm_head and ModulesToSave
	// excepted: one of quant.Weights for QLoRA. Invalid leaves them as they are.
	Base dtype.Type
	// Outliers, with a base of RowI8, multiplies integers as LLM.int8 does. Inputs of this
	// magnitude or more are multiplied apart; 6 is usual. 0 multiplies by decoded weights.
	Outliers float64
	// Strict refuses patterns, exclusions and numbers of layers that match nothing. Adapters of
	// other programs may have such, and they mean nothing there.
	Strict bool
}

// Attach changes a model: it freezes all params but those the options train, gives the
// chosen layers adapters, and returns the names of those layers in the order of the model.
// A new adapter adds nothing at first, unless Init says that it starts at random.
func Attach(m nn.Model, o Options) ([]string, error) {
	names, err := o.attach(m)
	if err != nil {
		return nil, fmt.Errorf("attaching adapters: %w", err)
	}
	_, err = nn.Bind(m)
	return names, err
}

// Quantize has the weights of a model's linear layers, lm_head excepted, held in a block format,
// as those of QLoRA are, for models that are only run. Outliers is as in Options. Of a type without scales (layerwise casting) they
// are those of convolutions too, and biases.
func Quantize(m nn.Model, base dtype.Type, outliers float64) error {
	if !quant.IsWeights(base) {
		return fmt.Errorf("weights cannot be held as %v; use %s", base, quant.Aliases(", "))
	}
	if !(outliers >= 0) || outliers > 0 && base != quant.RowI8 {
		return fmt.Errorf("an outlier threshold of %v with weights of %v; give a threshold above 0 and weights of %v", outliers, base, quant.RowI8)
	}
	if _, err := nn.Bind(m); err != nil {
		return err
	}
	all, err := linears(m)
	for _, p := range all {
		if !p.isHead {
			p.weight.Storage, p.weight.OutlierThreshold, p.weight.Frozen = base, outliers, true
			if p.bias != nil && base == quant.E4M3 {
				p.bias.Storage, p.bias.Frozen = base, true
			}
		}
	}
	if err != nil || base != quant.E4M3 {
		return err
	}
	return nn.Walk(m, func(_ string, part any) error {
		var weight, bias *nn.Param
		switch l := part.(type) {
		case *nn.Conv:
			weight, bias = l.Weight, l.Bias
		case *nn.ConvTranspose:
			weight, bias = l.Weight, l.Bias
		}
		for _, p := range []*nn.Param{weight, bias} {
			if p != nil {
				p.Storage, p.Frozen = base, true
			}
		}
		return nil
	})
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
	if o.Strict {
		if err := o.unused(all, chosen); err != nil {
			return nil, err
		}
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
		return fmt.Errorf("the base cannot be stored as %v; use %s or a plain type", o.Base, quant.Aliases(", "))
	case (o.TargetPattern == "") == (len(o.Targets) == 0):
		return fmt.Errorf("give targets such as q_proj, or %s, or a pattern", AllLinear)
	case o.TargetPattern != "" && len(o.Layers) > 0:
		return fmt.Errorf("layers %v are named next to the pattern %q, which has whole names; say the layers in the pattern, or name targets such as q_proj", o.Layers, o.TargetPattern)
	case !(o.Outliers >= 0) || o.Outliers > 0 && o.Base != quant.RowI8:
		return fmt.Errorf("an outlier threshold of %v with a base of %v; give a threshold above 0 and a base of %v", o.Outliers, o.Base, quant.RowI8)
	case o.DoRA && o.LoRABias:
		return fmt.Errorf("adapters of DoRA can have no bias of their own")
	}
	return o.checkWords()
}

// checkWords refuses values of Bias and Init that do not exist.
func (o Options) checkWords() error {
	switch {
	case !slices.Contains([]Bias{"", NoBias, AllBiases, LoRAOnly}, o.Bias):
		return fmt.Errorf("bias is %q; known are %s, %s and %s", o.Bias, NoBias, AllBiases, LoRAOnly)
	case !slices.Contains([]hf.AdapterInit{"", hf.InitDefault, hf.InitGaussian, hf.InitRandom}, o.Init):
		return fmt.Errorf("adapters cannot start as %q; known are %s, %s and %s", o.Init, hf.InitDefault, hf.InitGaussian, hf.InitRandom)
	}
	return nil
}

// scale is the factor of what an adapter adds.
func (o Options) scale(rank int64, alpha float64) float64 {
	if o.RankStabilized {
		return alpha / math.Sqrt(float64(rank))
	}
	return alpha / float64(rank)
}

// adapter makes a new one for a layer. The magnitudes of DoRA start as those of the
// weights, which package weights computes.
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
