package jinja

import (
	"fmt"
	"strings"
)

// subscript evaluates v[key]: an item, else an attribute.
func subscript(v, key any) (any, error) {
	switch v := v.(type) {
	case undefined:
		return nil, v.err()
	case *Dict:
		if item, found, err := v.get(key); found && err == nil {
			return item, nil
		}
	case *List:
		if i, ok := asInt(key); ok && (v.view == "" || v.view == "range") {
			return itemAt(v.Items, i), nil
		}
	case string:
		if i, ok := asInt(key); ok {
			list, err := items(v)
			return itemAt(list, i), err
		}
	}
	if s, ok := key.(string); ok {
		return method(v, s), nil
	}
	return undefined{what: "item " + repr(key) + " of " + typeName(v)}, nil
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
func attribute(v any, name string) (any, error) {
	if u, ok := v.(undefined); ok {
		return nil, u.err()
	}
	if d, ok := v.(*Dict); ok {
		if m := method(d, name); !isUndefined(m) && !d.namespace {
			return m, nil
		}
		if item, found := d.Values[name]; found {
			return item, nil
		}
		return undefined{what: name}, nil
	}
	if f, ok := v.(function); ok {
		return nil, fmt.Errorf("a %s has no attribute %s here", typeName(f), name)
	}
	return method(v, name), nil
}

func isUndefined(v any) bool {
	_, ok := v.(undefined)
	return ok
}

// slice evaluates v[from:to:step] as Python does.
func slice(v any, from, to, step any) (any, error) {
	list, err := items(v)
	if u, ok := v.(undefined); ok {
		err = u.err()
	}
	if _, ok := v.(*Dict); ok {
		err = fmt.Errorf("a dict has no slices")
	}
	if l, ok := v.(*List); ok && l.view != "" {
		err = fmt.Errorf("%s has no slices; apply the filter list first", l.view)
	}
	if err != nil {
		return nil, err
	}
	picked, err := sliceItems(list, from, to, step)
	if err != nil {
		return nil, err
	}
	if _, ok := v.(string); ok {
		var b strings.Builder
		for _, c := range picked {
			b.WriteString(c.(string))
		}
		return b.String(), nil
	}
	l := v.(*List)
	return &List{Items: picked, Tuple: l.Tuple}, nil
}

func sliceItems(list []any, from, to, step any) ([]any, error) {
	n, by := int64(len(list)), int64(1)
	if step != nil {
		var ok bool
		if by, ok = asInt(step); !ok || by == 0 {
			return nil, fmt.Errorf("a slice by steps of %s", repr(step))
		}
	}
	first, last := int64(0), n // the defaults of from and to
	if by < 0 {
		first, last = n-1, -1
	}
	low, high := min(0, last), max(n-1, last) // from and to are clamped to these
	bound := func(v any, otherwise int64) (int64, error) {
		if v == nil {
			return otherwise, nil
		}
		i, ok := asInt(v)
		if !ok {
			return 0, fmt.Errorf("a slice at %s", repr(v))
		}
		if i < 0 {
			i += n
		}
		return min(max(i, low), high), nil
	}
	i, err := bound(from, first)
	if err != nil {
		return nil, err
	}
	end, err := bound(to, last)
	if err != nil {
		return nil, err
	}
	var picked []any
	for ; by > 0 && i < end || by < 0 && i > end; i += by {
		picked = append(picked, list[i])
	}
	return picked, nil
}
