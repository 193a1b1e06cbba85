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
	"errors"
	"fmt"
	"strings"
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

// Compile compiles a template. Errors give its name.
func Compile(name, source string) (*Template, error) {
	if len(source) > maxSource {
		return nil, fmt.Errorf("%s: a template of %d bytes; at most %d are read", name, len(source), maxSource)
	}
	tokens, err := lex(source)
	if err != nil {
		return nil, withName(name, err)
	}
	p := parser{tokens: tokens}
	body, err := p.template()
	if err != nil {
		return nil, withName(name, err)
	}
	return &Template{name: name, body: body, generation: p.generation}, nil
}

// withName puts the template's name into an error that has a line.
func withName(name string, err error) error {
	var at *Error
	if errors.As(err, &at) {
		at.Name = name
		return at
	}
	return fmt.Errorf("%s: %w", name, err)
}

// withLine adds the line to an error that does not have one.
func withLine(line int, err error) error {
	var at *Error
	if err == nil || errors.As(err, &at) || errors.Is(err, errBreak) || errors.Is(err, errContinue) {
		return err
	}
	return &Error{Line: line, Err: err}
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
func (t *Template) Render(variables map[string]any, now time.Time) (Rendered, error) {
	r := &run{scope: globals(now).inner(), out: &strings.Builder{}, budget: &budget{}}
	for name, v := range variables {
		r.scope.set(name, v)
	}
	if err := r.all(t.body); err != nil {
		return Rendered{}, withName(t.name, err)
	}
	return Rendered{Text: r.out.String(), Generated: r.generated}, nil
}
