package spillway

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"spillway/dtype"
	"spillway/nn"
)

// Kept are modules that are an exception: they, and what is inside them, compute in a type
// and rest in it, whatever Precision is and whatever the base rests in. Values are cast
// where they enter and leave such a module; a weight that is kept in f32 needs no master.
type Kept struct {
	// Modules are names, whole or their last parts ("lm_head", "norm"), or regular
	// expressions of whole names, which have one of the characters *+?()[]{}|^$\.
	Modules []string
	// Type is F32, or the type of Precision, which only keeps them from being quantized:
	// Invalid stands for it.
	Type dtype.Type
}

// keep makes the exceptions of the options in a network.
func (o PlanOptions) keep(net nn.Model) error {
	for _, k := range o.Kept {
		t := k.Type
		if t == dtype.Invalid {
			t = o.Precision
		}
		if t != dtype.F32 && t != o.Precision {
			return fmt.Errorf("keeping %s in %v: it can be f32, or %v as the rest", strings.Join(k.Modules, ", "), t, o.Precision)
		}
		if err := k.apply(net, t); err != nil {
			return err
		}
	}
	return nil
}

func (k Kept) apply(net nn.Model, t dtype.Type) error {
	var found []string
	all := map[string]bool{}
	matchers, err := matchersOf(k.Modules)
	if err != nil {
		return err
	}
	_, err = nn.Keep(net, func(module string) (chosen bool) {
		all[module[strings.LastIndexByte(module, '.')+1:]] = true
		for i, matches := range matchers {
			if matches(module) {
				found, chosen = append(found, k.Modules[i]), true
			}
		}
		return chosen
	}, t)
	if err != nil {
		return err
	}
	for _, name := range k.Modules {
		if !slices.Contains(found, name) {
			return fmt.Errorf("keeping modules in %v: none is named %q; there are %s", t, name, listed(all))
		}
	}
	return nil
}

// matchersOf says of each name which modules it means.
func matchersOf(names []string) ([]func(module string) bool, error) {
	list := make([]func(string) bool, len(names))
	for i, name := range names {
		list[i] = func(module string) bool { return module == name || strings.HasSuffix(module, "."+name) }
		if !strings.ContainsAny(name, `*+?()[]{}|^$\`) {
			continue
		}
		pattern, err := regexp.Compile(`\A(?:` + name + `)\z`)
		if err != nil {
			return nil, fmt.Errorf("modules of the pattern %q: %w", name, err)
		}
		list[i] = pattern.MatchString
	}
	return list, nil
}

// listed are names that are words, in order: numbers of layers say little.
func listed(names map[string]bool) string {
	var list []string
	for name := range names {
		if strings.Trim(name, "0123456789") != "" {
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}
