package jinja

import (
	"cmp"
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
	// growing marks the list whose beginnings are rendered, from item offset on, and again its
	// beginning in a fork.
	growing, again bool
	offset         int
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
func (d *Dict) get(key any) (v any, found bool) {
	v, found = d.Values[hashKey(key)]
	return shown(v), found
}

// value returns the value of one of the dictionary's own keys.
func (d *Dict) value(key any) any { return shown(d.Values[hashKey(key)]) }

// hashKey returns a Go map key that is the same for equal Python keys.
func hashKey(key any) any {
	if n, ok := asInt(key); ok {
		return n
	}
	switch k := key.(type) {
	case float64:
		if n := int64(k); float64(n) == k {
			return n
		}
	case nil, string:
	default:
		panic(failf("%s cannot be the key of a dict; strings and numbers can", typeName(key)))
	}
	return key
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

func (u undefined) failure() failure {
	if u.of != "" {
		return failf("'%s' of %s is undefined", u.what, u.of)
	}
	return failf("%s is undefined", u.what)
}

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

func (r *run) equal(a, b any) bool {
	r.touch(itemBytes)
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
		r.touch(len(a))
		return a == b
	case undefined:
		return isUndefined(b)
	case *List:
		b, ok := b.(*List)
		return ok && (a == b || typeName(a) == typeName(b) && r.sameItems(a.Items, b.Items))
	case *Dict:
		b, ok := b.(*Dict)
		return ok && (a == b || !a.namespace && !b.namespace && r.sameEntries(a, b))
	}
	return false
}

func (r *run) sameItems(a, b []any) bool {
	r.nest()
	same := len(a) == len(b)
	for i := 0; same && i < len(a); i++ {
		same = r.equal(a[i], b[i])
	}
	r.depth--
	return same
}

func (r *run) sameEntries(a, b *Dict) bool {
	r.nest()
	same := len(a.Keys) == len(b.Keys)
	for _, k := range a.Keys {
		w, ok := b.get(k)
		if same = same && ok && r.equal(a.value(k), w); !same {
			break
		}
	}
	r.depth--
	return same
}

// compare orders numbers, strings and lists of them.
func (r *run) compare(a, b any) int {
	r.touch(itemBytes)
	if i, ok := asInt(a); ok {
		if j, ok := asInt(b); ok {
			return cmp.Compare(i, j)
		}
	}
	x, numbers := asFloat(a)
	y, also := asFloat(b)
	if numbers && also {
		return cmp.Compare(x, y)
	}
	s, strings := a.(string)
	t, too := b.(string)
	if strings && too {
		r.touch(min(len(s), len(t)))
		return cmp.Compare(s, t)
	}
	l, lists := a.(*List)
	m, both := b.(*List)
	if !lists || !both {
		panic(failf("%s and %s have no order", typeName(a), typeName(b)))
	}
	r.nest()
	c := 0
	for i := 0; c == 0 && i < min(len(l.Items), len(m.Items)); i++ {
		c = r.compare(l.Items[i], m.Items[i])
	}
	r.depth--
	return cmp.Or(c, cmp.Compare(len(l.Items), len(m.Items)))
}

// items returns what a loop over the value iterates over.
func (r *run) items(v any) []any {
	switch v := v.(type) {
	case undefined:
		return nil
	case *List:
		list := v.Items
		if v.view == generator {
			r.drain(v)
		}
		return list
	case *Dict:
		return r.list(slices.Clone(v.Keys), "").Items
	case string:
		r.make(2 * itemBytes * len(v))
		list := make([]any, 0, len(v))
		for _, c := range v {
			list = append(list, string(c))
		}
		return list
	}
	panic(failf("%s cannot be looped over", typeName(v)))
}

// entries returns the (key, value) pairs of a dictionary.
func (r *run) entries(d *Dict, view string) *List {
	r.make(entryBytes * len(d.Keys))
	pairs := make([]any, len(d.Keys))
	for i, k := range d.Keys {
		pairs[i] = &List{Items: []any{k, d.value(k)}, Tuple: true}
	}
	return r.list(pairs, view)
}

// length returns the length of a value, if it has one.
func length(v any) (n int, ok bool) {
	switch v := v.(type) {
	case string:
		return utf8.RuneCountInString(v), true
	case *List:
		return len(v.Items), v.view != generator
	case *Dict:
		return len(v.Keys), true
	}
	return 0, isUndefined(v)
}

// contains evaluates a in b.
func (r *run) contains(b, a any) bool {
	switch b := b.(type) {
	case string:
		s, ok := a.(string)
		if !ok {
			panic(failf("%s cannot be looked for in a string", typeName(a)))
		}
		r.touch(len(b) + len(s))
		return strings.Contains(b, s)
	case *Dict:
		_, found := b.get(a)
		return found
	}
	return slices.ContainsFunc(r.items(b), func(item any) bool { return r.equal(item, a) })
}
