package jinja

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// What a rendering may take. The largest conversations known take a thousandth.
const (
	maxSteps = 1_000_000 // statements, calls and turns of loops
	maxText  = 16 << 20  // bytes of a string, and of the result
	maxMade  = 1 << 30   // bytes of all strings and lists on the way
)

// statement is a compiled statement with its line.
type statement struct {
	line int
	do   func(*run) error
}

// expression is a compiled expression.
type expression func(*run) (any, error)

// run is a template at work.
type run struct {
	scope     *scope
	out       *strings.Builder
	captured  bool // out is not the result but becomes a value
	generated []Span
	budget    *budget
}

// budget counts what all parts of a rendering take together.
type budget struct{ steps, depth, made int }

// scope is names with values; what is not here is looked for outside. A scope has few
// names and there is one for every turn of a loop, so they are a list.
type scope struct {
	names []binding
	outer *scope
}

type binding struct {
	name  string
	value any
}

func (s *scope) set(name string, v any) {
	for i := range s.names {
		if s.names[i].name == name {
			s.names[i].value = v
			return
		}
	}
	s.names = append(s.names, binding{name, v})
}

func (s *scope) find(name string) any {
	for ; s != nil; s = s.outer {
		for i := range s.names {
			if s.names[i].name == name {
				return s.names[i].value
			}
		}
	}
	return undefined{what: "'" + name + "'"}
}

func (s *scope) inner() *scope { return &scope{outer: s} }

// Loops are left by these.
var (
	errBreak    = errors.New("break outside a loop")
	errContinue = errors.New("continue outside a loop")
)

func (r *run) all(list []statement) error {
	for _, s := range list {
		if err := r.step(); err != nil {
			return atLine(s.line, err)
		}
		if err := s.do(r); err != nil {
			return atLine(s.line, err)
		}
	}
	return nil
}

func (r *run) step() error {
	if r.budget.steps++; r.budget.steps > maxSteps {
		return fmt.Errorf("the template takes more than %d steps; does it end?", maxSteps)
	}
	return nil
}

func (r *run) write(s string) error {
	if r.out.Len()+len(s) > maxText {
		return fmt.Errorf("the text grows beyond %d bytes", maxText)
	}
	r.out.WriteString(s)
	return nil
}

// within runs statements in a scope of their own and gives what they wrote.
func (r *run) within(s *scope, body []statement) (string, error) {
	r.budget.depth++
	defer func() { r.budget.depth-- }()
	if r.budget.depth > maxDepth {
		return "", fmt.Errorf("macros and blocks nested more than %d deep; does a macro call itself?", maxDepth)
	}
	inner := &run{scope: s, out: &strings.Builder{}, captured: true, budget: r.budget}
	err := inner.all(body)
	return inner.out.String(), err
}

// call calls a value, which must be a function.
func (r *run) call(f any, args []any, named *Dict) (any, error) {
	fn, ok := f.(function)
	if u, missing := f.(undefined); missing {
		return nil, u.err()
	}
	if !ok {
		return nil, fmt.Errorf("%s cannot be called", typeName(f))
	}
	if err := r.step(); err != nil {
		return nil, err
	}
	v, err := fn(r, args, named)
	if err != nil {
		return nil, err
	}
	return r.made(v)
}

// made counts a value that was computed.
func (r *run) made(v any) (any, error) {
	size := 0
	switch v := v.(type) {
	case string:
		size = len(v)
	case *List:
		size = 16 * len(v.Items)
	}
	if r.budget.made += size; size > maxText || r.budget.made > maxMade {
		return nil, fmt.Errorf("a value of %d bytes, %d with all before it; at most %d and %d are allowed", size, r.budget.made, maxText, maxMade)
	}
	return v, nil
}

// bind gives arguments their names.
func bind(what string, args []any, named *Dict, names ...string) (map[string]any, error) {
	if len(args) > len(names) {
		return nil, fmt.Errorf("%s takes at most %d arguments, %d are given", what, len(names), len(args))
	}
	given := make(map[string]any, len(names))
	for i, v := range args {
		given[names[i]] = v
	}
	for _, k := range named.Keys {
		name := k.(string)
		if i := slices.Index(names, name); i < 0 || i < len(args) {
			return nil, fmt.Errorf("%s takes no argument %q, or has it already", what, name)
		}
		given[name] = named.Values[name]
	}
	return given, nil
}
