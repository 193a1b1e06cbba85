package jinja

import (
	"cmp"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Values are nil (Python's None), bool, int64, float64, string, *List, *Dict,
// function, loopState, and undefined, which is what has no value.

// List is a list, or a tuple, which only prints otherwise.
type List struct {
	Items []any
	Tuple bool
}

// Dict is a dictionary with keys in the order they came.
type Dict struct {
	Keys   []string
	Values map[string]any
	// open: templates may set its attributes, as those of namespace().
	open bool
}

// NewDict is empty.
func NewDict() *Dict { return &Dict{Values: map[string]any{}} }

// Set gives a key a value.
func (d *Dict) Set(key string, v any) {
	if _, known := d.Values[key]; !known {
		d.Keys = append(d.Keys, key)
	}
	d.Values[key] = v
}

// Clone is a dictionary of its own with the same values.
func (d *Dict) Clone() *Dict {
	c := NewDict()
	for _, k := range d.Keys {
		c.Set(k, d.Values[k])
	}
	return c
}

// undefined remembers what it is that has no value: something, or an attribute of a
// type.
type undefined struct{ what, of string }

func (u undefined) err() error {
	if u.of != "" {
		return fmt.Errorf("'%s' of %s is undefined", u.what, u.of)
	}
	return fmt.Errorf("%s is undefined", u.what)
}

// function is what can be called: with arguments, and arguments by name.
type function func(r *run, args []any, named map[string]any) (any, error)

// typeName is Python's word for the type of a value.
func typeName(v any) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case bool:
		return "bool"
	case int64:
		return "int"
	case float64:
		return "float"
	case string:
		return "str"
	case *List:
		if v.Tuple {
			return "tuple"
		}
		return "list"
	case *Dict:
		return "dict"
	case undefined:
		return "undefined"
	case loopState:
		return "loop"
	}
	return "function"
}

func truth(v any) bool {
	switch v := v.(type) {
	case nil, undefined:
		return false
	case bool:
		return v
	case int64:
		return v != 0
	case float64:
		return v != 0
	case string:
		return v != ""
	case *List:
		return len(v.Items) > 0
	case *Dict:
		return len(v.Keys) > 0
	}
	return true
}

// whole is a value as an integer; booleans are 0 and 1.
func whole(v any) (int64, bool) {
	switch v := v.(type) {
	case int64:
		return v, true
	case bool:
		if v {
			return 1, true
		}
		return 0, true
	}
	return 0, false
}

// number is a value as a float.
func number(v any) (float64, bool) {
	if f, ok := v.(float64); ok {
		return f, true
	}
	n, ok := whole(v)
	return float64(n), ok
}

func equal(a, b any) bool {
	if x, ok := number(a); ok {
		y, ok := number(b)
		return ok && x == y
	}
	switch a := a.(type) {
	case nil:
		return b == nil
	case string:
		s, ok := b.(string)
		return ok && a == s
	case undefined:
		_, ok := b.(undefined)
		return ok
	case *List:
		b, ok := b.(*List)
		return ok && sameItems(a.Items, b.Items)
	case *Dict:
		b, ok := b.(*Dict)
		return ok && sameEntries(a, b)
	}
	return false
}

func sameItems(a, b []any) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !equal(a[i], b[i]) {
			return false
		}
	}
	return true
}

func sameEntries(a, b *Dict) bool {
	if len(a.Keys) != len(b.Keys) {
		return false
	}
	for k, v := range a.Values {
		if w, ok := b.Values[k]; !ok || !equal(v, w) {
			return false
		}
	}
	return true
}

// compare orders numbers, strings and lists of them.
func compare(a, b any) (int, error) {
	x, numbers := number(a)
	y, also := number(b)
	if numbers && also {
		return cmp.Compare(x, y), nil
	}
	s, strings := a.(string)
	t, too := b.(string)
	if strings && too {
		return cmp.Compare(s, t), nil
	}
	l, lists := a.(*List)
	m, both := b.(*List)
	if !lists || !both {
		return 0, fmt.Errorf("%s and %s have no order", typeName(a), typeName(b))
	}
	for i := range min(len(l.Items), len(m.Items)) {
		if c, err := compare(l.Items[i], m.Items[i]); c != 0 || err != nil {
			return c, err
		}
	}
	return cmp.Compare(len(l.Items), len(m.Items)), nil
}

// items is what a loop over a value meets.
func items(v any) ([]any, error) {
	switch v := v.(type) {
	case undefined:
		return nil, nil
	case *List:
		return v.Items, nil
	case *Dict:
		return keys(v).Items, nil
	case string:
		list := make([]any, 0, len(v))
		for _, c := range v {
			list = append(list, string(c))
		}
		return list, nil
	}
	return nil, fmt.Errorf("%s cannot be looped over", typeName(v))
}

func keys(d *Dict) *List {
	l := &List{Items: make([]any, len(d.Keys))}
	for i, k := range d.Keys {
		l.Items[i] = k
	}
	return l
}

// entries are the pairs of a dictionary.
func entries(d *Dict) *List {
	l := &List{Items: make([]any, len(d.Keys))}
	for i, k := range d.Keys {
		l.Items[i] = pair(k, d.Values[k])
	}
	return l
}

func pair(a, b any) *List { return &List{Items: []any{a, b}, Tuple: true} }

func length(v any) (int64, error) {
	switch v := v.(type) {
	case string:
		return int64(utf8.RuneCountInString(v)), nil
	case *List:
		return int64(len(v.Items)), nil
	case *Dict:
		return int64(len(v.Keys)), nil
	case undefined:
		return 0, nil
	}
	return 0, fmt.Errorf("%s has no length", typeName(v))
}

// contains says whether a is in b.
func contains(b, a any) (bool, error) {
	switch b := b.(type) {
	case string:
		s, ok := a.(string)
		if !ok {
			return false, fmt.Errorf("%s cannot be looked for in a string", typeName(a))
		}
		return strings.Contains(b, s), nil
	case *Dict:
		s, ok := a.(string)
		_, found := b.Values[s]
		return ok && found, nil
	}
	list, err := items(b)
	for _, item := range list {
		if equal(item, a) {
			return true, nil
		}
	}
	return false, err
}
