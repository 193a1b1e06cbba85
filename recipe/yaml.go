package recipe

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"spillway/internal/suggest"
)

// isList says whether a setting may have several values.
func isList(f *flag.Flag) bool {
	_, ok := f.Value.(*List)
	return ok
}

// setting is a line of a file: a key with its values.
type setting struct {
	name         string
	values       []string // one, or those of a list
	line, column int      // from 1
}

// document is a file of settings, in its order.
type document struct {
	file     string
	settings []setting
}

// maxFile is the size of the largest recipe that is read, in bytes.
const maxFile = 1 << 17

// maxNesting is how deep brackets and dashes may be nested in a recipe, whose settings are
// flat: the parser takes memory by the square of the depth.
const maxNesting = 32

// maxLines is how many lines a recipe may have: the parser takes time by the square of some
// of them.
const maxLines = 10_000

// checkNesting refuses a file that is nested deeper or has more lines than any recipe.
func (r document) checkNesting(raw []byte) error {
	depth := 0
	for i, line := range strings.Split(string(raw), "\n") {
		if i == maxLines {
			return &Error{File: r.file, Line: i + 1, Column: 1, Err: fmt.Errorf("more than %d lines; is it a recipe?", maxLines)}
		}
		for _, c := range line {
			switch c {
			case '[', '{':
				depth++
			case ']', '}':
				depth = max(depth-1, 0)
			}
			if depth > maxNesting {
				break
			}
		}
		begin := line[:len(line)-len(strings.TrimLeft(line, " \t-?:"))]
		if depth > maxNesting || strings.Count(begin, "- ")+strings.Count(begin, "? ")+strings.Count(begin, ": ") > maxNesting {
			return &Error{File: r.file, Line: i + 1, Column: 1, Err: fmt.Errorf("brackets or dashes nested more than %d deep; a recipe is a list of settings", maxNesting)}
		}
	}
	return nil
}

// parse reads a file whose keys must be known. Keys may be written with _ for -.
func parse(file string, raw []byte, known []*flag.Flag) (document, error) {
	r := document{file: file}
	if len(raw) > maxFile {
		return r, fmt.Errorf("%s: a recipe of %d bytes; at most %d are read", file, len(raw), maxFile)
	}
	if err := r.checkNesting(raw); err != nil {
		return r, err
	}
	parsed, err := parser.ParseBytes(raw, 0)
	var syntax *yaml.SyntaxError
	if errors.As(err, &syntax) {
		return r, r.errorAt(syntax.Token, "%s", syntax.Message)
	}
	if err != nil {
		first, _, _ := strings.Cut(err.Error(), "\n") // the parser draws lines below it
		return r, r.errorAt(nil, "%s", first)
	}
	if len(parsed.Docs) > 1 {
		return r, r.errorAt(parsed.Docs[1].Start, "a second document; a recipe is one")
	}
	for _, doc := range parsed.Docs {
		if err := r.read(doc.Body, known); err != nil {
			return r, err
		}
	}
	return r, nil
}

// Error is a mistake in a recipe, with its place.
type Error struct {
	File         string
	Line, Column int // from 1
	Err          error
}

func (e *Error) Error() string { return fmt.Sprintf("%s:%d:%d: %v", e.File, e.Line, e.Column, e.Err) }

// Unwrap gives what is wrong.
func (e *Error) Unwrap() error { return e.Err }

// at is an error at a setting.
func (r document) at(s setting, err error) error { return &Error{r.file, s.line, s.column, err} }

func (r document) errorAt(at *token.Token, format string, args ...any) error {
	e := &Error{r.file, 1, 1, fmt.Errorf(format, args...)}
	if at != nil && at.Position != nil {
		e.Line, e.Column = at.Position.Line, at.Position.Column
	}
	return e
}

func (r *document) read(body ast.Node, known []*flag.Flag) error {
	switch body := body.(type) {
	case nil, *ast.CommentGroupNode:
		return nil
	case *ast.MappingNode:
		var unknown []error
		for _, v := range body.Values {
			err := r.setting(v, known)
			var of *unknownError
			if err != nil && !errors.As(err, &of) {
				return errors.Join(append(unknown, err)...)
			}
			if err != nil {
				unknown = append(unknown, err)
			}
		}
		return errors.Join(unknown...)
	case *ast.MappingValueNode:
		return r.setting(body, known)
	}
	return r.errorAt(body.GetToken(), "a recipe is lines of the form name: value")
}

// setting takes one line in.
func (r *document) setting(node *ast.MappingValueNode, known []*flag.Flag) error {
	at := node.Key.GetToken()
	s := setting{name: strings.ReplaceAll(at.Value, "_", "-"), line: at.Position.Line, column: at.Position.Column}
	k, err := find(s.name, known)
	if err != nil {
		return r.at(s, err)
	}
	for _, earlier := range r.settings {
		if cmp.Or(Aliases[earlier.name], earlier.name) == cmp.Or(Aliases[s.name], s.name) {
			return r.at(s, fmt.Errorf("%s is set a second time, first in line %d", s.name, earlier.line))
		}
	}
	if s.values, err = r.values(s.name, node.Value); err != nil {
		return err
	}
	if len(s.values) != 1 && !isList(k) {
		return r.at(s, fmt.Errorf("%s has %d values, it takes one", s.name, len(s.values)))
	}
	r.settings = append(r.settings, s)
	return nil
}

// values of a setting: a list, or one.
func (r document) values(name string, node ast.Node) ([]string, error) {
	list, ok := node.(*ast.SequenceNode)
	if !ok {
		v, err := r.value(name, node)
		return []string{v}, err
	}
	var values []string
	for _, item := range list.Values {
		v, err := r.value(name, item)
		if err != nil {
			return nil, err
		}
		values = append(values, v)
	}
	return values, nil
}

// value is a scalar as it was written.
func (r document) value(name string, node ast.Node) (string, error) {
	switch node := node.(type) {
	case *ast.StringNode:
		return node.Value, nil
	case *ast.LiteralNode:
		return node.Value.Value, nil
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return node.GetToken().Value, nil
	case *ast.NullNode:
		return "", r.errorAt(node.GetToken(), "%s has no value; give one, or leave the line out", name)
	}
	return "", r.errorAt(node.GetToken(), "%s takes a value or a list of values, this is %s", name, strings.ToLower(node.Type().String()))
}

// find is a setting by its name; the error says which name is near.
func find(name string, known []*flag.Flag) (*flag.Flag, error) {
	var names []string
	for _, k := range known {
		if k.Name == name {
			return k, nil
		}
		names = append(names, k.Name)
	}
	hint := suggest.Hint(name, names)
	if theirs := TheirNames[name]; theirs != "" {
		ours, value, valued := strings.Cut(theirs, " ")
		if hint = "; did you mean " + ours + "?"; valued {
			hint = "; did you mean " + ours + ": " + strings.ReplaceAll(value, " --quantization ", ", quantization: ") + "?"
		}
	} else if why := Without[name]; why != "" {
		hint = ": " + why
	}
	return nil, &unknownError{fmt.Errorf("there is no setting %q%s", name, hint)}
}

// unknownError is a name that no setting has.
type unknownError struct{ error }
