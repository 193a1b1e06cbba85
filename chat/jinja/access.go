package jinja

import (
	"fmt"
	"strings"
)

// subscript evaluates v[key]: an item, else an attribute.
func (r *run) subscript(v, key any) any {
	i, isIndex := asInt(key)
	if l, ok := r.growing(v); ok {
		switch {
		case !isIndex || i < 0:
			r.reveal()
		case i < int64(len(l.Items)):
			r.see(l, int(i))
		}
	}
	switch v := v.(type) {
	case undefined:
		panic(v.failure())
	case *Dict:
		switch key.(type) { // others are never keys
		case nil, bool, int64, float64, string:
			if item, found := v.Values[hashKey(key)]; found {
				return r.entry(item)
			}
		}
	case *List:
		if isIndex && (v.view == "" || v.view == "range") {
			return itemAt(v.Items, i)
		}
	case string:
		if isIndex {
			return itemAt(r.items(v), i)
		}
	}
	if s, ok := key.(string); ok {
		return method(v, s)
	}
	return undefined{what: "item " + r.repr(key) + " of " + typeName(v)}
}

// itemAt returns item i of a list, counted from the end if i is negative.
func itemAt(list []any, i int64) any {
	n := int64(len(list))
	if i < 0 {
		i += n
	}
	if i < 0 || i >= n {
		return undefined{what: fmt.Sprintf("item %d of %d", i, n)}
	}
	return list[i]
}

// attribute evaluates v.name: a method, else an item.
func (r *run) attribute(v any, name string) any {
	switch v := v.(type) {
	case undefined:
		panic(v.failure())
	case function:
		panic(failf("a function has no attribute %s here", name))
	case *Dict:
		if m := method(v, name); !isUndefined(m) && !v.namespace {
			return m
		}
		if item, found := v.Values[name]; found {
			return r.entry(item)
		}
		return undefined{what: name}
	}
	return method(v, name)
}

func isUndefined(v any) bool {
	_, ok := v.(undefined)
	return ok
}

// slice evaluates v[from:to:step] as Python does.
func (r *run) slice(v any, from, to, step any) any {
	if _, ok := r.growing(v); ok {
		r.reveal()
	}
	switch v := v.(type) {
	case undefined:
		panic(v.failure())
	case string:
		var b strings.Builder
		for _, c := range r.sliceItems(r.items(v), from, to, step) {
			b.WriteString(c.(string))
		}
		return b.String()
	case *List:
		if v.view != "" {
			panic(failf("%s has no slices; apply the filter list first", v.view))
		}
		return &List{Items: r.sliceItems(v.Items, from, to, step), Tuple: v.Tuple}
	}
	panic(failf("%s has no slices", typeName(v)))
}

func (r *run) sliceItems(list []any, from, to, step any) []any {
	n, by := int64(len(list)), int64(1)
	if step != nil {
		var ok bool
		if by, ok = asInt(step); !ok || by == 0 {
			panic(failf("a slice by steps of %s", r.repr(step)))
		}
	}
	first, last := int64(0), n // the defaults of from and to
	if by < 0 {
		first, last = n-1, -1
	}
	low, high := min(0, last), max(n-1, last) // from and to are clamped to these
	bound := func(v any, otherwise int64) int64 {
		if v == nil {
			return otherwise
		}
		i, ok := asInt(v)
		if !ok {
			panic(failf("a slice at %s", r.repr(v)))
		}
		if i < 0 {
			i += n
		}
		return min(max(i, low), high)
	}
	i, end := bound(from, first), bound(to, last)
	var picked []any
	for ; by > 0 && i < end || by < 0 && i > end; i += by {
		picked = append(picked, list[i])
	}
	r.make(itemBytes * len(picked))
	return picked
}
