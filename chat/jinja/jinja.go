// Package jinja renders the templates that models bring to write conversations
// with. It is the part of Jinja 2 such templates use, with the settings, filters and
// functions that transformers gives them, and with the results of Python: what is
// printed, joined or compared comes out as it would there.
//
// A source becomes tokens (lex.go), tokens become functions (statement.go, loop.go,
// macro.go, expression.go, postfix.go), and functions run on values (run.go, value.go,
// access.go, arithmetic.go). What a template may call is in globals.go, filters.go,
// tests.go and methods.go; how values are written in text.go and json.go.
//
// Templates come with models from anywhere, so they are taken to be hostile: they
// change none of the values they are given, reach nothing outside them, and steps,
// depth and length are bounded. Every error names the line.
package jinja

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// maxSource is the length of the longest template that is read. The longest known
// has 20 kB.
const maxSource = 1 << 20

// Template is a compiled template. It is safe for concurrent use.
type Template struct {
	name string
	body []statement
	// generation: it marks what the model generates.
	generation bool
}

// Error is a mistake in a template, or one met while rendering it.
type Error struct {
	Name string // of the template
	Line int    // from 1
	Err  error
}

func (e *Error) Error() string { return fmt.Sprintf("%s:%d: %v", e.Name, e.Line, e.Err) }

// Unwrap gives what was wrong.
func (e *Error) Unwrap() error { return e.Err }

// RefusedError is what a template says when it calls raise_exception: it was written
// so as not to take the conversation.
type RefusedError struct{ Message string }

func (e *RefusedError) Error() string { return "the template refuses this: " + e.Message }

// Compile reads a template. Errors call it name.
func Compile(name, source string) (*Template, error) {
	if len(source) > maxSource {
		return nil, fmt.Errorf("%s: a template of %d bytes; at most %d are read", name, len(source), maxSource)
	}
	tokens, err := lex(source)
	if err != nil {
		return nil, located(name, err)
	}
	p := parser{tokens: tokens}
	body, err := p.template()
	if err != nil {
		return nil, located(name, err)
	}
	return &Template{name: name, body: body, generation: p.generation}, nil
}

// located names the template in an error that knows its line.
func located(name string, err error) error {
	var at *Error
	if errors.As(err, &at) {
		at.Name = name
		return at
	}
	return fmt.Errorf("%s: %w", name, err)
}

// atLine is an error that knows its line; one that knows it already keeps it.
func atLine(line int, err error) error {
	var at *Error
	if err == nil || errors.As(err, &at) || errors.Is(err, errBreak) || errors.Is(err, errContinue) {
		return err
	}
	return &Error{Line: line, Err: err}
}

// Generation says whether the template marks with {% generation %} what the model is
// to write.
func (t *Template) Generation() bool { return t.generation }

// Span is a range of bytes.
type Span struct{ Start, End int }

// Rendered is what a template gave, and which parts of it stood in generation blocks.
type Rendered struct {
	Text      string
	Generated []Span
}

// Render fills the template with variables, values as FromJSON makes them. now is
// what strftime_now is asked for.
func (t *Template) Render(variables map[string]any, now time.Time) (Rendered, error) {
	r := &run{scope: globals(now).inner(), out: &strings.Builder{}, budget: &budget{}}
	for name, v := range variables {
		r.scope.set(name, v)
	}
	if err := r.all(t.body); err != nil {
		return Rendered{}, located(t.name, err)
	}
	return Rendered{Text: r.out.String(), Generated: r.generated}, nil
}
