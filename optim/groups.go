package optim

import (
	"fmt"
	"slices"
	"strings"
)

// Group is params that are trained with hyper-parameters of their own.
type Group struct {
	// Params are words or expressions as those of NoDecay; one that matches is enough.
	Params []string `json:"params"`
	// Options are the hyper-parameters that differ, as Parse reads them behind the name:
	// "lr=1e-4,weight_decay=0,beta2=0.95".
	Options string `json:"options"`
}

// Of is the optimizer of a group: c with what differs.
func (g Group) Of(c Config) (Config, error) {
	r, err := find(c.Name)
	if err != nil {
		return c, err
	}
	was, states := c, c.States()
	if err := readOptions(r.options(&c), g.Options); err != nil {
		return c, fmt.Errorf("group %s: optimizer %s: %w", strings.Join(g.Params, ", "), c.Name, err)
	}
	if c.Codecs != was.Codecs || c.Min8BitSize != was.Min8BitSize || c.StateExceptions != was.StateExceptions || !slices.Equal(c.States(), states) {
		return c, fmt.Errorf("group %s: %q changes which states there are or their types; those are the whole optimizer's, by states_of and codecs", strings.Join(g.Params, ", "), g.Options)
	}
	if err := c.Check(); err != nil {
		return c, fmt.Errorf("group %s: %w", strings.Join(g.Params, ", "), err)
	}
	kind, err := was.Kind()
	if own, _ := c.Kind(); own != kind {
		err = fmt.Errorf("group %s: %q asks for another update (%s) than the whole optimizer's (%s), which all params have; give the option to the optimizer, and its value to each group",
			strings.Join(g.Params, ", "), g.Options, own, kind)
	}
	return c, err
}

// GroupOf makes the function that numbers the groups of params from 1 on: the first whose
// pattern matches. Params of none have 0.
func GroupOf(groups []Group, l Layers) (func(param string) int, error) {
	patterns := make([][]pattern, len(groups))
	for i, g := range groups {
		for _, item := range g.Params {
			p, err := paramPattern(item, l)
			if err != nil {
				return nil, fmt.Errorf("groups of params: %w", err)
			}
			patterns[i] = append(patterns[i], p)
		}
	}
	return func(param string) int {
		return 1 + slices.IndexFunc(patterns, func(list []pattern) bool {
			return slices.ContainsFunc(list, func(p pattern) bool { return p.covers(param) })
		})
	}, nil
}

// Decays makes the test whether a param decays: as its group says where that names a weight decay, else where n does not leave it alone.
func Decays(n NoDecay, groups []Group, l Layers) (func(param string) bool, error) {
	usual, err := n.Decays(l)
	if err != nil {
		return nil, err
	}
	group, err := GroupOf(groups, l)
	if err != nil {
		return nil, err
	}
	return func(param string) bool {
		i := group(param)
		return i > 0 && groups[i-1].namesDecay() || usual(param)
	}, nil
}

// namesDecay says whether a group has a weight decay of its own.
func (g Group) namesDecay() bool {
	for item := range strings.SplitSeq(g.Options, ",") {
		if name, _, _ := strings.Cut(item, "="); strings.TrimSpace(name) == "weight_decay" {
			return true
		}
	}
	return false
}

// Matches makes the test whether a param matches one of some words or expressions, as those of NoDecay.
func Matches(patterns []string, l Layers) (func(param string) bool, error) {
	decays, err := NoDecay(patterns).Decays(l)
	if err != nil {
		return nil, err
	}
	return func(param string) bool { return !decays(param) }, nil
}
