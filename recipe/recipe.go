// Package recipe keeps the settings of a run in a YAML file that people write, read
// and share:
//
//	model: ./llama
//	data: [chats.jsonl]
//	method: lora
//	lr: 2e-4
//
// A recipe is a flat list of settings with names that are known beforehand. Read says
// where in the file each stands, so that whoever uses a value can point at it when it
// is wrong. A name nobody knows is an error, never passed over.
package recipe

import (
	"errors"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Known is a setting that a recipe may have.
type Key struct {
	Name    string
	Help    string // one line
	Default string // what counts where the setting is left out, as one would write it
	List    bool   // it may have several values
}

// Setting is one that a recipe has.
type Setting struct {
	Name   string
	Values []string // one, or those of a list
	Line   int      // from 1
	Column int      // from 1
}

// Recipe is a file of settings, in its order.
type Recipe struct {
	File     string
	Settings []Setting
}

// maxFile is the size of the largest recipe that is read, in bytes.
const maxFile = 1 << 20

// Read reads a recipe whose settings must be among those known. Names may be written
// with _ for -.
func Read(file string, raw []byte, known []Key) (Recipe, error) {
	r := Recipe{File: file}
	if len(raw) > maxFile {
		return r, fmt.Errorf("%s: a recipe of %d bytes; at most %d are read", file, len(raw), maxFile)
	}
	parsed, err := parser.ParseBytes(raw, 0)
	if err != nil {
		return r, r.syntaxError(err)
	}
	if len(parsed.Docs) > 1 {
		return r, r.errorAt(parsed.Docs[1].GetToken(), "a second document; a recipe is one")
	}
	for _, doc := range parsed.Docs {
		if err := r.document(doc.Body, known); err != nil {
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

// At is an error at a setting of the recipe.
func (r Recipe) At(s Setting, err error) error { return &Error{r.File, s.Line, s.Column, err} }

func (r Recipe) errorAt(at *token.Token, format string, args ...any) error {
	e := &Error{r.File, 1, 1, fmt.Errorf(format, args...)}
	if at != nil && at.Position != nil {
		e.Line, e.Column = at.Position.Line, at.Position.Column
	}
	return e
}

// syntax is the parser's error without the lines it draws.
func (r Recipe) syntaxError(err error) error {
	var s *yaml.SyntaxError
	if errors.As(err, &s) {
		return r.errorAt(s.Token, "%s", s.Message)
	}
	first, _, _ := strings.Cut(err.Error(), "\n")
	return r.errorAt(nil, "%s", first)
}

func (r *Recipe) document(body ast.Node, known []Key) error {
	switch body := body.(type) {
	case nil, *ast.CommentGroupNode:
		return nil
	case *ast.MappingNode:
		for _, v := range body.Values {
			if err := r.setting(v, known); err != nil {
				return err
			}
		}
		return nil
	case *ast.MappingValueNode:
		return r.setting(body, known)
	}
	return r.errorAt(body.GetToken(), "a recipe is lines of the form name: value")
}

// setting takes one line in.
func (r *Recipe) setting(node *ast.MappingValueNode, known []Key) error {
	at := node.Key.GetToken()
	s := Setting{Name: strings.ReplaceAll(at.Value, "_", "-"), Line: at.Position.Line, Column: at.Position.Column}
	k, err := find(s.Name, known)
	if err != nil {
		return r.At(s, err)
	}
	for _, earlier := range r.Settings {
		if earlier.Name == s.Name {
			return r.At(s, fmt.Errorf("%s is set a second time, first in line %d", s.Name, earlier.Line))
		}
	}
	if s.Values, err = r.values(s.Name, node.Value); err != nil {
		return err
	}
	if len(s.Values) != 1 && !k.List {
		return r.At(s, fmt.Errorf("%s has %d values, it takes one", s.Name, len(s.Values)))
	}
	r.Settings = append(r.Settings, s)
	return nil
}

// values of a setting: a list, or one.
func (r Recipe) values(name string, node ast.Node) ([]string, error) {
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
func (r Recipe) value(name string, node ast.Node) (string, error) {
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
func find(name string, known []Key) (Key, error) {
	nearest, least := "", len(name)/2+1
	for _, k := range known {
		if k.Name == name {
			return k, nil
		}
		if d := distance(name, k.Name); d < least {
			nearest, least = k.Name, d
		}
	}
	if nearest == "" {
		return Key{}, fmt.Errorf("there is no setting %q", name)
	}
	return Key{}, fmt.Errorf("there is no setting %q; did you mean %s?", name, nearest)
}

// distance is how many letters must be put in, taken out or changed to make b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
