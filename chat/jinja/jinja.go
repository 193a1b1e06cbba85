// Package jinja renders the chat templates of models. It implements the part of Jinja 2
// that such templates use, with the settings, filters and functions that transformers
// adds. Results are Python's: what is printed, joined or compared comes out as there.
//
// A source becomes tokens (lex.go), tokens become functions (statement.go, loop.go,
// macro.go, expression.go, postfix.go), and functions run on values (run.go, value.go,
// access.go, arithmetic.go). What a template may call is in globals.go, filters.go,
// tests.go and methods.go; text.go and json.go write values as text.
//
// Templates come with models from anywhere, so they may be hostile: they cannot change
// the values they are given or reach anything else, and their steps, nesting and output
// are bounded. Every error names the line.
package jinja

import (
	"cmp"
	"fmt"
	"time"
)

// maxSource is the length in bytes of the longest template that is read. The longest
// known has 20 kB.
const maxSource = 1 << 20

// Template is a compiled template. It is safe for concurrent use.
type Template struct {
	name       string
	body       []statement
	generation bool // it has a {% generation %} block
}

// Error is an error in a template, or one that occurred while rendering it.
type Error struct {
	Name string // of the template
	Line int    // from 1
	Err  error
}

func (e *Error) Error() string { return fmt.Sprintf("%s:%d: %v", e.Name, e.Line, e.Err) }

// Unwrap returns what was wrong.
func (e *Error) Unwrap() error { return e.Err }

// RefusedError is the error of a template that calls raise_exception, because it does
// not accept the conversation.
type RefusedError struct{ Message string }

func (e *RefusedError) Error() string { return "the template refuses this: " + e.Message }

// failure is what compiling and rendering panic with when a template is wrong. Both are
// deep recursions, which end that way at once; Compile and Render return the error.
type failure struct {
	line int // 0 means the line that was reached
	err  error
}

func failf(format string, args ...any) failure { return failure{err: fmt.Errorf(format, args...)} }

// recoverError turns a failure into an error of the template with the given name. line
// is the line that was reached.
func recoverError(err *error, name string, line *int) {
	switch f := recover().(type) {
	case nil:
	case failure:
		*err = &Error{Name: name, Line: cmp.Or(f.line, *line), Err: f.err}
	default:
		panic(f)
	}
}

// Compile compiles a template. Errors give its name.
func Compile(name, source string) (t *Template, err error) {
	if len(source) > maxSource {
		return nil, fmt.Errorf("%s: a template of %d bytes; at most %d are read", name, len(source), maxSource)
	}
	line := 1
	defer recoverError(&err, name, &line)
	p := parser{tokens: lex(source, &line)}
	body, _ := p.until()
	return &Template{name: name, body: body, generation: p.generation}, nil
}

// Generation reports whether the template marks with {% generation %} what the model
// writes.
func (t *Template) Generation() bool { return t.generation }

// Span is a range of bytes.
type Span struct{ Start, End int }

// Rendered is the output of a template and which parts of it are from generation blocks.
type Rendered struct {
	Text      string
	Generated []Span
}

// Render renders the template with variables, whose values FromJSON makes. now is the
// time that strftime_now prints.
func (t *Template) Render(variables map[string]any, now time.Time) (_ Rendered, err error) {
	r := newRun(globals(now).inner(), variables)
	defer recoverError(&err, t.name, &r.line)
	r.all(t.body)
	return Rendered{Text: r.out.String(), Generated: r.generated}, nil
}
