package lora

import (
	"fmt"
	"slices"
	"strings"

	"spillway/nn"
)

// freeze freezes all params but biases and saved modules that are to be trained.
func (o Options) freeze(params []*nn.Param, chosen []linear, saved map[*nn.Param]bool) {
	for _, p := range params {
		p.Frozen = !saved[p] && !(o.Bias == AllBiases && strings.Contains(p.Name, "bias"))
	}
	for _, p := range chosen {
		if o.Bias == LoRAOnly && p.bias != nil {
			p.bias.Frozen = false
		}
	}
}

// savedParams finds the params of ModulesToSave. A module tied to another is refused: PEFT
// would train a copy of it, and the two would be tied no more.
func (o Options) savedParams(m nn.Model) (map[*nn.Param]bool, error) {
	saved, met := map[*nn.Param]bool{}, map[string]bool{}
	var inside []string // names of modules that are saved
	err := nn.Walk(m, func(name string, part any) error {
		p, isParam := part.(*nn.Param)
		within := slices.ContainsFunc(inside, func(module string) bool { return strings.HasPrefix(name, module+".") })
		switch {
		case isParam && within && p.Name != name:
			return fmt.Errorf("the weight of %s is tied to %s, so it cannot be trained by itself", name, p.Name)
		case isParam && saved[p] && !within:
			return fmt.Errorf("the weight %s is tied to %s, so it cannot be trained by itself", p.Name, name)
		case isParam:
			saved[p] = within
			return nil
		}
		for _, ending := range o.ModulesToSave {
			if strings.HasSuffix(name, ending) {
				inside, met[ending] = append(inside, name), true
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("modules to save: %w", err)
	}
	for _, ending := range o.ModulesToSave {
		if !met[ending] {
			return nil, fmt.Errorf("no module to save has a name that ends in %q", ending)
		}
	}
	return saved, nil
}
