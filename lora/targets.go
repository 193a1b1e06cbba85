package lora

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"spillway/nn"
)

// linear is a layer that can have an adapter.
type linear struct {
	name         string
	weight, bias *nn.Param // a nil bias is none
	adapter      **nn.Adapter
	in, out      int64
	outIn        bool // the weight is [out in]
	isHead       bool // it is lm_head
}

// linears lists the linear layers of a model, each once.
func linears(m nn.Model) ([]linear, error) {
	var output *nn.Linear
	if h, ok := m.(interface{ Output() *nn.Linear }); ok {
		output = h.Output()
	}
	var all []linear
	seen := map[any]bool{}
	err := nn.Walk(m, func(name string, part any) error {
		if seen[part] {
			return nil
		}
		seen[part] = true
		switch l := part.(type) {
		case *nn.Linear:
			all = append(all, linear{name, l.Weight, l.Bias, &l.Adapter, l.Weight.Shape.Last(), l.Weight.Shape.Rows(), true, l == output})
		case *nn.Conv1D:
			all = append(all, linear{name, l.Weight, l.Bias, &l.Adapter, l.Weight.Shape.Rows(), l.Weight.Shape.Last(), false, false})
		}
		return nil
	})
	return all, err
}

// choose picks the layers that the options name. Every target must match a layer.
func (o Options) choose(all []linear) ([]linear, error) {
	targets, err := newSelection(o.Targets, o.TargetPattern)
	if err != nil {
		return nil, err
	}
	left, err := o.excluded()
	if err != nil {
		return nil, err
	}
	var chosen []linear
	for _, p := range all {
		if !targets.has(p.name) && !(targets.all && !p.isHead) || left(p.name) {
			continue
		}
		switch {
		case p.isHead:
			return nil, fmt.Errorf("layer %s makes the logits, which are fused with the loss and can have no adapter", p.name)
		case *p.adapter != nil:
			return nil, fmt.Errorf("layer %s has an adapter already", p.name)
		}
		chosen = append(chosen, p)
	}
	if err := targets.unmatched(); err != nil {
		return nil, fmt.Errorf("%w; there are %s", err, suffixes(all))
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("all layers that are targets are excluded, saved whole or in other layers than %v", o.Layers)
	}
	return chosen, nil
}

// unused is an error if an option names something that no layer is.
func (o Options) unused(all, chosen []linear) error {
	excluded, err := newSelection(o.Exclude, o.ExcludePattern)
	if err != nil {
		return err
	}
	for _, p := range all {
		excluded.has(p.name)
	}
	if err := excluded.unmatched(); err != nil {
		return fmt.Errorf("excluding: %w; there are %s", err, suffixes(all))
	}
	matches := func(list []linear, in func(name string) bool) bool {
		return slices.ContainsFunc(list, func(p linear) bool { return in(p.name) })
	}
	for _, n := range o.Layers {
		o.Layers = []int{n}
		if in, err := o.inLayers(); err != nil || !matches(all, in) {
			return errors.Join(err, fmt.Errorf("there is no layer %d", n))
		}
	}
	for _, pattern := range slices.Concat(slices.Sorted(maps.Keys(o.RankPattern)), slices.Sorted(maps.Keys(o.AlphaPattern))) {
		re, err := compile(`\A(?:.*\.)?(?:`, pattern, `)\z`)
		if err != nil {
			return err
		}
		if !matches(chosen, re.MatchString) {
			return fmt.Errorf("the pattern %q of ranks or alphas matches no layer with an adapter; there are %s", pattern, suffixes(chosen))
		}
	}
	return nil
}

// excluded says which layers get no adapter though targets name them.
func (o Options) excluded() (func(name string) bool, error) {
	excluded, err := newSelection(o.Exclude, o.ExcludePattern)
	if err != nil {
		return nil, fmt.Errorf("excluding: %w", err)
	}
	within, err := o.inLayers()
	if err != nil {
		return nil, err
	}
	return func(name string) bool {
		inSaved := slices.ContainsFunc(o.ModulesToSave, func(m string) bool { return strings.Contains("."+name+".", "."+m+".") })
		return excluded.has(name) || inSaved || !within(name)
	}, nil
}

// inLayers says whether a layer is in one of the numbered layers that Layers lists. Targets
// given by their whole names always are.
func (o Options) inLayers() (func(name string) bool, error) {
	if len(o.Layers) == 0 || o.TargetPattern != "" {
		return func(string) bool { return true }, nil
	}
	lists := o.LayersPattern
	if len(lists) == 0 {
		lists = []string{`[^.]*`}
	}
	find, err := compile(`\A(?:.*?\.)?(?:`, strings.Join(lists, "|"), `)\.(\d+)\.`)
	if err != nil {
		return nil, err
	}
	return func(name string) bool {
		if slices.Contains(o.Targets, name) {
			return true
		}
		found := find.FindStringSubmatch(name)
		if found == nil {
			return false
		}
		n, err := strconv.Atoi(found[len(found)-1])
		return err == nil && slices.Contains(o.Layers, n)
	}, nil
}

// suffixes are the distinct last parts of the names, to show what could be chosen.
func suffixes(all []linear) string {
	var list []string
	for _, p := range all {
		if end := p.name[strings.LastIndexByte(p.name, '.')+1:]; !slices.Contains(list, end) {
			list = append(list, end)
		}
	}
	return strings.Join(list, ", ")
}

// LinearWeights names the weights of a model's linear layers, lm_head left out: what is
// worth quantizing.
func LinearWeights(m nn.Model) (map[string]bool, error) {
	all, err := linears(m)
	names := map[string]bool{}
	for _, p := range all {
		if !p.isHead {
			names[p.weight.Name] = true
		}
	}
	return names, err
}
