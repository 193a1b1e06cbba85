package nn

import (
	"fmt"
	"slices"
)

// OtherNames are the further names of params that are reached from several fields, by their own.
func OtherNames(m Model) map[string][]string {
	names := map[string][]string{}
	// What Bind accepted is walked without an error.
	_ = Walk(m, func(name string, part any) error {
		if p, ok := part.(*Param); ok && p.Name != "" && p.Name != name && !slices.Contains(names[p.Name], name) {
			names[p.Name] = append(names[p.Name], name)
		}
		return nil
	})
	return names
}

// Bind names all params of a model from its hf tags and returns them in the order
// of the fields. Binding again changes nothing, so that after the first time a
// model may be traced by several goroutines.
func Bind(m Model) ([]*Param, error) {
	var params []*Param
	names := map[*Param]string{}
	owners := map[string]*Param{}
	err := Walk(m, func(name string, part any) error {
		p, ok := part.(*Param)
		if _, tied := names[p]; !ok || tied {
			return nil
		}
		if owners[name] != nil {
			return fmt.Errorf("two weights are named %q, of shapes %v and %v", name, owners[name].Shape, p.Shape)
		}
		names[p], owners[name] = name, p
		params = append(params, p)
		if name == "" {
			return fmt.Errorf("the model is a single param and has no name")
		}
		if err := p.Shape.Check(); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if p.Shape.Elements() == 0 {
			return fmt.Errorf("%s has the shape %v, without elements; leave the layer out", name, p.Shape)
		}
		if random := p.Init.Dist == "normal" || p.Init.Dist == "uniform"; random && !(p.Init.Scale >= 0) {
			return fmt.Errorf("%s starts %s with a scale of %v; it must not be below 0", name, p.Init.Dist, p.Init.Scale)
		}
		if p.Name != name { // otherwise others may be reading it
			p.Name = name
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("naming the weights of %T: %w", m, err)
	}
	return params, nil
}
