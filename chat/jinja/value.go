package jinja

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// Values are nil (Python's None), bool, int64, float64, string, *List, *Dict,
// function, loopState, and undefined for what has no value.

// List is a list, or another of Python's ordered types.
type List struct {
	Items []any
	Tuple bool
	// view is the Python type if it is neither list nor tuple: dict_keys, dict_values,
	// dict_items, range, or generator, which can be read only once.
	view string
}

// generator is the view of the lists that map, select and similar filters return.
const generator = "generator"

// Dict is a dictionary that keeps the order of its keys. Keys in templates may be
// numbers; 1, 1.0 and true are the same key, as in Python.
type Dict struct {
	Keys   []any
	Values map[any]any // by hashed key
	// namespace says that it comes from namespace(): templates may set its attributes.
	namespace bool
}

// NewDict returns an empty dictionary.
func NewDict() *Dict { return &Dict{Values: map[any]any{}} }

// Set sets the value of a key.
func (d *Dict) Set(key string, v any) { d.put(key, key, v) }

// put sets the value of a key; hash is hashKey(key).
func (d *Dict) put(key, hash, v any) {
	if _, known := d.Values[hash]; !known {
		d.Keys = append(d.Keys, key)
	}
	d.Values[hash] = v
}

// get returns the value of a key, if there is one.
func (d *Dict) get(key any) (v any, found bool, err error) {
	hash, err := hashKey(key)
	if err != nil {
		return nil, false, err
	}
	v, found = d.Values[hash]
	return v, found, nil
}

// value returns the value of one of the dictionary's own keys.
func (d *Dict) value(key any) any {
	v, _, _ := d.get(key)
	return v
}

// hashKey returns a Go map key that is the same for equal Python keys.
func hashKey(key any) (any, error) {
	if n, ok := asInt(key); ok {
		return n, nil
	}
	switch k := key.(type) {
	case float64:
		if n := int64(k); float64(n) == k {
			return n, nil
		}
	case nil, string:
	default:
		return nil, fmt.Errorf("%s cannot be the key of a dict; strings and numbers can", typeName(key))
	}
	return key, nil
}

// Names returns the string keys. All keys from JSON are strings.
func (d *Dict) Names() []string {
	var names []string
	for _, k := range d.Keys {
		if s, ok := k.(string); ok {
			names = append(names, s)
		}
	}
	return names
}

// Clone returns a copy that shares the values.
func (d *Dict) Clone() *Dict {
	c := NewDict()
	c.Keys = slices.Clone(d.Keys)
	maps.Copy(c.Values, d.Values)
	return c
}

// undefined is the value of something missing. what and of name it for errors: a
// variable, or an attribute of a type.
type undefined struct{ what, of string }

func (u undefined) err() error {
	if u.of != "" {
		return fmt.Errorf("'%s' of %s is undefined", u.what, u.of)
	}
	return fmt.Errorf("%s is undefined", u.what)
}

// function is a value that can be called with positional and named arguments.
type function func(r *run, args []any, named *Dict) (any, error)

// typeName returns Python's name of a value's type.
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
		switch {
		case v.view != "":
			return v.view
		case v.Tuple:
			return "tuple"
		}
		return "list"
	case *Dict:
		if v.namespace {
			return "namespace"
		}
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
		return len(v.Items) > 0 || v.view == generator
	case *Dict:
		return len(v.Keys) > 0
	}
	return true
}

// asInt returns a value as an integer, if it is one. Booleans are 0 and 1.
func asInt(v any) (int64, bool) {
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

// asFloat returns a number as a float.
func asFloat(v any) (float64, bool) {
	if f, ok := v.(float64); ok {
		return f, true
	}
	n, ok := asInt(v)
	return float64(n), ok
}

func equal(a, b any) bool {
	if i, ok := asInt(a); ok {
		if j, ok := asInt(b); ok {
			return i == j
		}
	}
	if x, ok := asFloat(a); ok {
		y, ok := asFloat(b)
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
		return ok && typeName(a) == typeName(b) && sameItems(a.Items, b.Items)
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
	if i, ok := asInt(a); ok {
		if j, ok := asInt(b); ok {
			return cmp.Compare(i, j), nil
		}
	}
	x, numbers := asFloat(a)
	y, also := asFloat(b)
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

// items returns what a loop over the value iterates over.
func items(v any) ([]any, error) {
	switch v := v.(type) {
	case undefined:
		return nil, nil
	case *List:
		list := v.Items
		if v.view == generator {
			v.Items = nil
		}
		return list, nil
	case *Dict:
		return slices.Clone(v.Keys), nil
	case string:
		list := make([]any, 0, len(v))
		for _, c := range v {
			list = append(list, string(c))
		}
		return list, nil
	}
	return nil, fmt.Errorf("%s cannot be looped over", typeName(v))
}

func keys(d *Dict) *List { return &List{Items: slices.Clone(d.Keys), view: "dict_keys"} }

func values(d *Dict) *List {
	l := &List{Items: make([]any, len(d.Keys)), view: "dict_values"}
	for i, k := range d.Keys {
		l.Items[i] = d.value(k)
	}
	return l
}

// entries returns the (key, value) pairs of a dictionary.
func entries(d *Dict) *List {
	l := &List{Items: make([]any, len(d.Keys)), view: "dict_items"}
	for i, k := range d.Keys {
		l.Items[i] = pair(k, d.value(k))
	}
	return l
}

func pair(a, b any) *List { return &List{Items: []any{a, b}, Tuple: true} }

func length(v any) (int64, error) {
	switch v := v.(type) {
	case string:
		return int64(utf8.RuneCountInString(v)), nil
	case *List:
		if v.view != generator {
			return int64(len(v.Items)), nil
		}
	case *Dict:
		return int64(len(v.Keys)), nil
	case undefined:
		return 0, nil
	}
	return 0, fmt.Errorf("%s has no length", typeName(v))
}

// contains evaluates a in b.
func contains(b, a any) (bool, error) {
	switch b := b.(type) {
	case string:
		s, ok := a.(string)
		if !ok {
			return false, fmt.Errorf("%s cannot be looked for in a string", typeName(a))
		}
		return strings.Contains(b, s), nil
	case *Dict:
		_, found, err := b.get(a)
		return found, err
	}
	list, err := items(b)
	for _, item := range list {
		if equal(item, a) {
			return true, nil
		}
	}
	return false, err
}
