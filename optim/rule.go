package optim

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"spillway/op"
	"spillway/shape"
)

// Rule is an optimizer as data. Its file registers it; parsing, help, planning, checks,
// checkpoints and launches all read this value.
type Rule struct {
	Name string // "adamw"
	Help string // one line for help texts

	// LR and WeightDecay are PyTorch's defaults.
	LR, WeightDecay float64
	// Options are the hyper-parameters besides lr and weight_decay.
	Options []Option
	// Check refuses combinations of hyper-parameters that cannot work; nil for none.
	Check func(Config) error

	// Kind is the op that devices run; several rules may share one.
	Kind op.Kind
	// KindOf is another op for some hyper-parameters; nil for none.
	KindOf func(Config) op.Kind
	// States names what is stored of each element of a param, as PyTorch calls it, in
	// the order in which the op takes it.
	States func(Config) []string
	// OtherStates are states that depend on the param's name or layer, or have shapes of their own, behind the others;
	// nil for none.
	OtherStates func(param string, s shape.Shape, l Layers) []op.State
	// No8Bit: its states cannot be stored in 8 bits.
	No8Bit bool

	// Rate bounds the learning rate of an iteration; nil takes what the schedule says.
	Rate func(c Config, iteration int, lr float64) float64
	// Scalars are the numbers of one iteration under the names that the op gives them.
	// Iterations count from 1.
	Scalars func(c Config, iteration int, lr, weightDecay float32) op.Scalars
}

// kind is the op that devices run with some hyper-parameters.
func (r *Rule) kind(c Config) op.Kind {
	if r.KindOf != nil {
		return r.KindOf(c)
	}
	return r.Kind
}

// Option is a hyper-parameter of a rule, called as PyTorch calls it. A flag is 0 or 1.
type Option struct {
	Name    string
	Help    string
	Default float64
	Flag    bool
	// Below is what the value must be below, in float32; 0 for any finite number.
	Below float64
	// Negative: it is 0 or less, instead of 0 or more.
	Negative bool
}

// maxOptions is how many hyper-parameters a rule may have besides lr and weight_decay.
const maxOptions = 12

// rules holds the registered optimizers. It is filled by init functions.
var rules = map[string]*Rule{}

// Register adds an optimizer. Call it from an init function; it panics where the rule is
// incomplete or its name is taken.
func Register(r Rule) {
	switch {
	case r.Name == "" || r.Kind == "" || r.States == nil || r.Scalars == nil:
		panic(fmt.Sprintf("optim: Register of %q without name, kind, states or scalars", r.Name))
	case rules[r.Name] != nil:
		panic(fmt.Sprintf("optim: Register of %q twice", r.Name))
	case len(r.Options) > maxOptions:
		panic(fmt.Sprintf("optim: %q has %d options, %d is the most", r.Name, len(r.Options), maxOptions))
	}
	rules[r.Name] = &r
}

// Default is the optimizer of those who name none.
const Default = "adamw"

// Names lists the optimizers: the default one, then the others in alphabetical order.
func Names() []string {
	others := slices.DeleteFunc(slices.Sorted(maps.Keys(rules)), func(name string) bool { return name == Default })
	return append([]string{Default}, others...)
}

// help describes every optimizer and its options, a few lines each.
func help() string {
	var b strings.Builder
	for _, name := range Names() {
		r := rules[name]
		fmt.Fprintf(&b, "%s: %s\n", name, r.Help)
		fmt.Fprintf(&b, "  lr=%v, weight_decay=%v\n", r.LR, r.WeightDecay)
		for _, o := range r.Options {
			fmt.Fprintf(&b, "  %s=%s: %s\n", o.Name, optionText(option{o.Name, new(o.Default), o.Flag}), o.Help)
		}
	}
	return b.String()
}

func find(name string) (*Rule, error) {
	if r := rules[name]; r != nil {
		return r, nil
	}
	return nil, fmt.Errorf("there is no optimizer %q; there are %s", name, strings.Join(Names(), ", "))
}

// defaults is the rule with PyTorch's hyper-parameters.
func (r *Rule) defaults() Config {
	c := Config{Name: r.Name, LR: r.LR, WeightDecay: r.WeightDecay}
	for i, o := range r.Options {
		c.values[i] = o.Default
	}
	return c
}

// options lists all that a description of the optimizer may set.
func (r *Rule) options(c *Config) []option {
	list := []option{{"lr", &c.LR, false}}
	for i, o := range r.Options {
		list = append(list, option{o.Name, &c.values[i], o.Flag})
	}
	return append(list, option{"weight_decay", &c.WeightDecay, false},
		option{"codecs", &c.Codecs, false}, option{"min_8bit_size", &c.Min8BitSize, false}, option{"states_of", &c.StateExceptions, false})
}

// check refuses hyper-parameters outside their ranges.
func (r *Rule) check(c Config) error {
	list := append([]Option{{Name: "lr"}, {Name: "weight_decay"}}, r.Options...)
	values := append([]float64{c.LR, c.WeightDecay}, c.values[:]...)
	for i, o := range list {
		v, below := values[i], cmp.Or(o.Below, math.MaxFloat32)
		size := v
		if o.Negative {
			size = -v
		}
		if !(size >= 0) || float64(float32(size)) >= below {
			return fmt.Errorf("optimizer %s: %s is %v; it must be at least 0 and below %v", c.Name, o.Name, v, below)
		}
	}
	if r.Check == nil {
		return nil
	}
	if err := r.Check(c); err != nil {
		return fmt.Errorf("optimizer %s: %w", c.Name, err)
	}
	return nil
}
