// Package lora attaches low-rank adapters to the products of a model: the base is
// frozen, and beside each chosen weight W a small pair B·A is trained. With the base
// in a 4-bit format this is QLoRA.
package lora

import (
	"fmt"
	"math"
	"regexp"
	"strings"

	"spillway/dtype"
	"spillway/nn"
	"spillway/shape"
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

// product is a layer that can have an adapter.
type product struct {
	name    string
	weight  *nn.Param
	adapter **nn.Adapter
	in, out int64
	output  bool // it makes the logits
}

// products lists the layers of a model, each once.
func products(m nn.Model) ([]product, error) {
	var output *nn.Linear
	if h, ok := m.(interface{ Output() *nn.Linear }); ok {
		output = h.Output()
	}
	var all []product
	seen := map[any]bool{}
	err := nn.Walk(m, func(name string, part any) error {
		if seen[part] {
			return nil
		}
		seen[part] = true
		switch l := part.(type) {
		case *nn.Linear:
			out, in := sides(l.Weight.Shape)
			all = append(all, product{name, l.Weight, &l.Adapter, in, out, l == output})
		case *nn.Conv1D:
			in, out := sides(l.Weight.Shape)
			all = append(all, product{name, l.Weight, &l.Adapter, in, out, false})
		}
		return nil
	})
	return all, err
}

func sides(s shape.Shape) (a, b int64) { return s.Rows(), s.Last() }

// choose picks the products the options name. Every target must be met.
func (o Options) choose(all []product) ([]product, error) {
	match, missed, err := o.matcher()
	if err != nil {
		return nil, err
	}
	var chosen []product
	for _, p := range all {
		if !match(p) {
			continue
		}
		if *p.adapter != nil {
			return nil, fmt.Errorf("layer %s has an adapter already", p.name)
		}
		chosen = append(chosen, p)
	}
	if err := missed(); err != nil {
		return nil, fmt.Errorf("%w; there are %s", err, endings(all))
	}
	return chosen, nil
}

// matcher says which products are meant, and afterwards what was never met.
func (o Options) matcher() (match func(product) bool, missed func() error, err error) {
	if o.Pattern != "" {
		return o.patternMatcher()
	}
	met := make([]bool, len(o.Targets))
	match = func(p product) (chosen bool) {
		for i, t := range o.Targets {
			if t == AllLinear && !p.output || p.name == t || strings.HasSuffix(p.name, "."+t) {
				met[i], chosen = true, true
			}
		}
		return chosen
	}
	missed = func() error {
		for i, t := range o.Targets {
			if !met[i] {
				return fmt.Errorf("no layer is named %q", t)
			}
		}
		return nil
	}
	return match, missed, nil
}

func (o Options) patternMatcher() (func(product) bool, func() error, error) {
	re, err := regexp.Compile(`\A(?:` + o.Pattern + `)\z`)
	if err != nil {
		return nil, nil, fmt.Errorf("pattern %q: %w", o.Pattern, err)
	}
	met := false
	match := func(p product) bool {
		found := re.MatchString(p.name)
		met = met || found
		return found
	}
	missed := func() error {
		if !met {
			return fmt.Errorf("no layer has a name of pattern %q", o.Pattern)
		}
		return nil
	}
	return match, missed, nil
}

// endings are the distinct last parts of the names, to show what could be chosen.
func endings(all []product) string {
	var list []string
	seen := map[string]bool{}
	for _, p := range all {
		end := p.name[strings.LastIndexByte(p.name, '.')+1:]
		if !seen[end] {
			seen[end] = true
			list = append(list, end)
		}
	}
	return strings.Join(list, ", ")
}

// FileName is the name of an adapter's param in a PEFT folder.
func FileName(param string) string { return "base_model.model." + param }
