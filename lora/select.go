package lora

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// selection chooses layers by names, whole or their last parts, or by a pattern of whole
// names. It remembers which of them matched a layer.
type selection struct {
	names   []string
	pattern *regexp.Regexp
	all     bool // AllLinear is among the names
	matched map[string]bool
}

func newSelection(names []string, pattern string) (*selection, error) {
	s := &selection{names: names, all: slices.Contains(names, AllLinear), matched: map[string]bool{AllLinear: true}}
	if pattern == "" {
		return s, nil
	}
	var err error
	s.pattern, err = compile(`\A(?:`, pattern, `)\z`)
	s.names = []string{pattern}
	return s, err
}

// compile makes a regular expression of a user's pattern and what goes around it.
func compile(before, pattern, after string) (*regexp.Regexp, error) {
	re, err := regexp.Compile(before + pattern + after)
	if err != nil {
		return nil, fmt.Errorf("pattern %q: %w", pattern, err)
	}
	return re, nil
}

// has says whether a layer is selected.
func (s *selection) has(layer string) (found bool) {
	for _, name := range s.names {
		matches := layer == name || strings.HasSuffix(layer, "."+name)
		if s.pattern != nil {
			matches = s.pattern.MatchString(layer)
		}
		if matches {
			s.matched[name], found = true, true
		}
	}
	return found
}

// unmatched is an error if a name matched no layer.
func (s *selection) unmatched() error {
	for _, name := range s.names {
		switch {
		case s.matched[name]:
		case s.pattern != nil:
			return fmt.Errorf("no layer has a name of pattern %q", name)
		default:
			return fmt.Errorf("no layer is named %q", name)
		}
	}
	return nil
}

// rankAndAlpha gives the rank and alpha of a layer's adapter.
func (o Options) rankAndAlpha() (func(layer string) (rank int64, alpha float64), error) {
	ranks, err := bySuffix(o.RankPattern)
	if err != nil {
		return nil, err
	}
	alphas, err := bySuffix(o.AlphaPattern)
	if err != nil {
		return nil, err
	}
	for pattern, rank := range o.RankPattern {
		if rank < 1 {
			return nil, fmt.Errorf("the rank of %s is %d, want at least 1", pattern, rank)
		}
	}
	return func(layer string) (int64, float64) { return ranks(layer, o.Rank), alphas(layer, o.Alpha) }, nil
}

// bySuffix finds the value of the first pattern, in alphabetical order, that is the end
// of a name.
func bySuffix[V any](values map[string]V) (func(name string, usual V) V, error) {
	patterns := slices.Sorted(maps.Keys(values))
	compiled := make([]*regexp.Regexp, len(patterns))
	for i, p := range patterns {
		var err error
		if compiled[i], err = compile(`\A(?:.*\.)?(?:`, p, `)\z`); err != nil {
			return nil, err
		}
	}
	return func(name string, usual V) V {
		for i, re := range compiled {
			if re.MatchString(name) {
				return values[patterns[i]]
			}
		}
		return usual
	}, nil
}
