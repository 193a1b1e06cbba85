package jinja

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

func endItem(v any, i int64) (any, error) {
	l, err := items(v)
	return at(l, i), err
}

func reverse(v any) (any, error) {
	if s, ok := v.(string); ok {
		return slice(s, nil, nil, int64(-1))
	}
	l, err := items(v)
	l = slices.Clone(l)
	slices.Reverse(l)
	return &List{Items: l}, err
}

func unique(v any) (any, error) {
	l, err := items(v)
	kept := &List{}
	for _, item := range l {
		if known, _ := contains(kept, item); !known {
			kept.Items = append(kept.Items, item)
		}
	}
	return kept, err
}

func itemsOf(v any) (any, error) {
	switch v := v.(type) {
	case undefined:
		return &List{}, nil
	case *Dict:
		return entries(v), nil
	}
	return nil, fmt.Errorf("%s has no items", typeName(v))
}

func dictsort(v any) (any, error) {
	d, ok := v.(*Dict)
	if !ok {
		return nil, fmt.Errorf("%s has no items", typeName(v))
	}
	l := entries(d)
	slices.SortStableFunc(l.Items, func(a, b any) int {
		return cmp.Compare(strings.ToLower(a.(*List).Items[0].(string)), strings.ToLower(b.(*List).Items[0].(string)))
	})
	return l, nil
}

// sortFilter sorts strings without regard to case, as Jinja does.
func sortFilter(_ *run, args []any, named map[string]any) (any, error) {
	given, err := bind("sort", args, named, "value", "reverse", "case_sensitive", "attribute")
	if err != nil {
		return nil, err
	}
	l, err := items(given["value"])
	if err != nil {
		return nil, err
	}
	key := func(v any) (any, error) {
		if name, ok := given["attribute"].(string); ok {
			if v, err = path(v, name); err != nil {
				return nil, err
			}
		}
		if s, ok := v.(string); ok && !truth(given["case_sensitive"]) {
			return strings.ToLower(s), nil
		}
		return v, nil
	}
	l = slices.Clone(l)
	var wrong error
	slices.SortStableFunc(l, func(a, b any) int {
		x, err1 := key(a)
		y, err2 := key(b)
		c, err3 := compare(x, y)
		wrong = errors.Join(wrong, err1, err2, err3)
		if truth(given["reverse"]) {
			return -c
		}
		return c
	})
	return &List{Items: l}, wrong
}

// path is an attribute, or an attribute of one: "function.name".
func path(v any, name string) (_ any, err error) {
	for _, part := range strings.Split(name, ".") {
		if n, number := parseInt(part); number == nil {
			v, err = subscript(v, n)
		} else {
			v, err = subscript(v, part)
		}
		if err != nil {
			return nil, err
		}
	}
	return v, nil
}

func join(v any, separator string) (any, error) {
	l, err := items(v)
	if err != nil {
		return nil, err
	}
	parts, size := make([]string, len(l)), 0
	for i, item := range l {
		parts[i] = text(item)
		if size += len(parts[i]) + len(separator); size > maxText {
			return nil, fmt.Errorf("joining more than %d bytes", maxText)
		}
	}
	return strings.Join(parts, separator), nil
}

func joinFilter(_ *run, args []any, named map[string]any) (any, error) {
	given, err := bind("join", args, named, "value", "d", "attribute")
	if err != nil {
		return nil, err
	}
	v := given["value"]
	if name, ok := given["attribute"].(string); ok {
		if v, err = attributes(v, name, nil); err != nil {
			return nil, err
		}
	}
	separator := ""
	if d, ok := given["d"]; ok {
		separator = text(d)
	}
	return join(v, separator)
}

// attributes of all items; otherwise stands for those that have none, if not nil.
func attributes(v any, name string, otherwise any) (*List, error) {
	l, err := items(v)
	if err != nil {
		return nil, err
	}
	list := &List{Items: make([]any, len(l))}
	for i, item := range l {
		if list.Items[i], err = path(item, name); err != nil {
			return nil, err
		}
		if isUndefined(list.Items[i]) && otherwise != nil {
			list.Items[i] = otherwise
		}
	}
	return list, nil
}

// mapFilter takes an attribute of each item, or applies a filter to each.
func mapFilter(r *run, args []any, named map[string]any) (any, error) {
	if name, ok := named["attribute"]; ok {
		return attributes(args[0], text(name), named["default"])
	}
	if len(args) < 2 {
		return nil, errors.New("map needs the name of a filter, or attribute=")
	}
	f, ok := filters[text(args[1])]
	if !ok {
		return nil, fmt.Errorf("there is no filter %q", text(args[1]))
	}
	l, err := items(args[0])
	if err != nil {
		return nil, err
	}
	list := &List{Items: make([]any, len(l))}
	for i, item := range l {
		if list.Items[i], err = r.call(f, append([]any{item}, args[2:]...), named); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// selecting keeps items, or leaves them out, by a test on them or on an attribute;
// without a test, by their truth.
func selecting(attribute, keep bool) function {
	return func(_ *run, args []any, _ map[string]any) (any, error) {
		l, err := items(args[0])
		if err != nil {
			return nil, err
		}
		rest, name := args[1:], ""
		if attribute {
			if len(rest) == 0 {
				return nil, errors.New("the name of an attribute is missing")
			}
			name, rest = text(rest[0]), rest[1:]
		}
		holds := func(v any, _ []any) (bool, error) { return truth(v), nil }
		if len(rest) > 0 {
			test, ok := tests[text(rest[0])]
			if !ok {
				return nil, fmt.Errorf("there is no test %q", text(rest[0]))
			}
			holds, rest = test, rest[1:]
		}
		kept := &List{}
		for _, item := range l {
			v := item
			if attribute {
				if v, err = path(item, name); err != nil {
					return nil, err
				}
			}
			ok, err := holds(v, rest)
			if err != nil {
				return nil, err
			}
			if ok == keep {
				kept.Items = append(kept.Items, item)
			}
		}
		return kept, nil
	}
}
