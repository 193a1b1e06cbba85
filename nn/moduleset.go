package nn

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// ModuleSet selects modules by name: full names or their last parts ("lm_head", "mlp.down_proj"),
// or regular expressions of full names, behind the prefix Pattern.
type ModuleSet struct {
	names    []string
	patterns []*regexp.Regexp // by name; nil for a plain one
	matched  map[string]bool  // names
	seen     map[string]bool  // last parts of modules asked about
}

// Pattern is the prefix of a regular expression.
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

// Has reports whether a module is selected.
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

// Unmatched is an error where some name matched no module that Has was asked about. The
// error lists the names there are, without the numbers of layers.
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

// Within reports whether a module, or one that contains it, is selected. All are asked about.
func Within(module string, chosen func(module string) bool) (is bool) {
	for ; module != ""; module = outer(module) {
		is = chosen(module) || is
	}
	return is
}

// outer is the name of the containing module.
func outer(name string) string { return name[:max(strings.LastIndexByte(name, '.'), 0)] }
