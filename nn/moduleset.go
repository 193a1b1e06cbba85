package nn

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// ModuleSet are modules by their names, whole or the last parts ("lm_head", "mlp.down_proj"),
// or by regular expressions of whole names, behind Pattern.
type ModuleSet struct {
	names    []string
	patterns []*regexp.Regexp // by name; nil for a plain one
	matched  map[string]bool  // names
	seen     map[string]bool  // last parts of modules asked about
}

// Pattern is what tells a regular expression from a name.
const Pattern = "re:"

// NewModuleSet reads names and patterns.
func NewModuleSet(names []string) (*ModuleSet, error) {
	c := &ModuleSet{names: names, patterns: make([]*regexp.Regexp, len(names)), matched: map[string]bool{}, seen: map[string]bool{}}
	for i, name := range names {
		pattern, is := strings.CutPrefix(name, Pattern)
		if !is {
			continue
		}
		var err error
		if c.patterns[i], err = regexp.Compile(`\A(?:` + pattern + `)\z`); err != nil {
			return nil, fmt.Errorf("modules of the pattern %q: %w", pattern, err)
		}
	}
	return c, nil
}

// Has says whether a module is chosen.
func (c *ModuleSet) Has(module string) (chosen bool) {
	c.seen[module[strings.LastIndexByte(module, '.')+1:]] = true
	for i, name := range c.names {
		matches := module == name || strings.HasSuffix(module, "."+name)
		if p := c.patterns[i]; p != nil {
			matches = p.MatchString(module)
		}
		if matches {
			c.matched[name], chosen = true, true
		}
	}
	return chosen
}

// Unmatched is an error where a name met no module that was asked about. Numbers of layers are
// not worth telling.
func (c *ModuleSet) Unmatched() error {
	for _, name := range c.names {
		if c.matched[name] {
			continue
		}
		words := slices.DeleteFunc(slices.Sorted(maps.Keys(c.seen)), func(s string) bool { return strings.Trim(s, "0123456789") == "" })
		return fmt.Errorf("none is named %q; there are %s", name, strings.Join(words, ", "))
	}
	return nil
}

// Within says whether a module, or one that it is in, is chosen. All of them are asked about.
func Within(module string, chosen func(module string) bool) (is bool) {
	for ; module != ""; module = outer(module) {
		is = chosen(module) || is
	}
	return is
}

// outer is the name of what something is in.
func outer(name string) string { return name[:max(strings.LastIndexByte(name, '.'), 0)] }
