package lora

import (
	"fmt"
	"regexp"
	"strings"

	"spillway/nn"
)

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
		case *nn.Linear: // [out in]
			all = append(all, product{name, l.Weight, &l.Adapter, l.Weight.Shape.Last(), l.Weight.Shape.Rows(), l == output})
		case *nn.Conv1D: // [in out]
			all = append(all, product{name, l.Weight, &l.Adapter, l.Weight.Shape.Rows(), l.Weight.Shape.Last(), false})
		}
		return nil
	})
	return all, err
}

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
		switch {
		case p.output:
			return nil, fmt.Errorf("layer %s makes the logits, which are fused with the loss and can have no adapter", p.name)
		case *p.adapter != nil:
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
