package jinja

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Limits of one rendering. The largest conversations known need a thousandth of them.
const (
	maxSteps      = 1_000_000 // statements, calls and loop iterations
	maxText       = 16 << 20  // bytes of one string, and of the result
	maxValueBytes = 1 << 30   // bytes of all strings and lists computed
)

// statement is a compiled statement with its line.
type statement struct {
	line int
	do   func(*run) error
}

// expression is a compiled expression.
type expression func(*run) (any, error)

// then is an expression made of another one's value.
func (e expression) then(f func(r *run, v any) (any, error)) expression {
	return func(r *run) (any, error) {
		v, err := e(r)
		if err != nil {
			return nil, err
		}
		return f(r, v)
	}
}

// both is an expression made of the values of two, the first one's first.
func both(a, b expression, f func(r *run, x, y any) (any, error)) expression {
	return a.then(func(r *run, x any) (any, error) {
		y, err := b(r)
		if err != nil {
			return nil, err
		}
		return f(r, x, y)
	})
}

// run is the state of one rendering.
type run struct {
	scope     *scope
	out       *strings.Builder
	captured  bool // out becomes a value, not the result
	generated []Span
	budget    *budget
}

// budget counts what a rendering has used of its limits. All macros and blocks share
// it.
type budget struct{ steps, depth, bytes int }

// scope holds variables. Names that it lacks are looked up in outer. It is a list and
// not a map, because a scope has few names and every loop iteration makes one.
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

// The statements break and continue end the iteration of a loop with these errors.
var (
	errBreak    = errors.New("break outside a loop")
	errContinue = errors.New("continue outside a loop")
)

func (r *run) all(list []statement) error {
	for _, s := range list {
		if err := r.step(); err != nil {
			return withLine(s.line, err)
		}
		if err := s.do(r); err != nil {
			return withLine(s.line, err)
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

// capture runs statements in the given scope and returns what they wrote.
func (r *run) capture(s *scope, body []statement) (string, error) {
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
	return r.countBytes(v)
}

// countBytes adds a computed value to the budget.
func (r *run) countBytes(v any) (any, error) {
	size := 0
	switch v := v.(type) {
	case string:
		size = len(v)
	case *List:
		size = 16 * len(v.Items)
	}
	if r.budget.bytes += size; size > maxText || r.budget.bytes > maxValueBytes {
		return nil, fmt.Errorf("a value of %d bytes, %d with all before it; at most %d and %d are allowed", size, r.budget.bytes, maxText, maxValueBytes)
	}
	return v, nil
}

// bind matches positional and named arguments with the parameter names of what is
// called.
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
