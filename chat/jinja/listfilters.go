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
	return itemAt(l, i), err
}

func reverse(v any) (any, error) {
	if s, ok := v.(string); ok {
		return slice(s, nil, nil, int64(-1))
	}
	l, err := items(v)
	l = slices.Clone(l)
	slices.Reverse(l)
	return &List{Items: l, view: generator}, err
}

// foldCase returns the key by which sorting and comparing go: lower-case for strings,
// unless caseSensitive is true.
func foldCase(v, caseSensitive any) any {
	if s, ok := v.(string); ok && !truth(caseSensitive) {
		return strings.ToLower(s)
	}
	return v
}

// unique drops items that equal an earlier one, or whose attribute does.
func unique(_ *run, args []any, named *Dict) (any, error) {
	given, err := bind("unique", args, named, "value", "case_sensitive", "attribute")
	if err != nil {
		return nil, err
	}
	l, err := items(given["value"])
	if err != nil {
		return nil, err
	}
	chosen, seen := &List{view: generator}, &List{}
	for _, item := range l {
		key := item
		if name, ok := given["attribute"]; ok {
			if key, err = path(item, text(name)); err != nil {
				return nil, err
			}
		}
		key = foldCase(key, given["case_sensitive"])
		if known, _ := contains(seen, key); !known {
			chosen.Items, seen.Items = append(chosen.Items, item), append(seen.Items, key)
		}
	}
	return chosen, nil
}

func itemsOf(v any) (any, error) {
	switch v := v.(type) {
	case undefined:
		return &List{view: generator}, nil
	case *Dict:
		return &List{Items: entries(v).Items, view: generator}, nil
	}
	return nil, fmt.Errorf("%s has no items", typeName(v))
}

func dictsort(_ *run, args []any, named *Dict) (any, error) {
	given, err := bind("dictsort", args, named, "value", "case_sensitive", "by", "reverse")
	if err != nil {
		return nil, err
	}
	d, ok := given["value"].(*Dict)
	if !ok {
		return nil, fmt.Errorf("%s has no items", typeName(given["value"]))
	}
	by := 0
	if given["by"] == "value" {
		by = 1
	}
	key := func(v any) (any, error) { return foldCase(v.(*List).Items[by], given["case_sensitive"]), nil }
	return sortedBy(entries(d).Items, key, truth(given["reverse"]))
}

// sortedBy sorts a list by a key of its items. The sort is stable.
func sortedBy(list []any, key func(any) (any, error), reverse bool) (any, error) {
	list = slices.Clone(list)
	var wrong error
	slices.SortStableFunc(list, func(a, b any) int {
		x, err1 := key(a)
		y, err2 := key(b)
		c, err3 := compare(x, y)
		wrong = cmp.Or(wrong, err1, err2, err3)
		if reverse {
			return -c
		}
		return c
	})
	return &List{Items: list}, wrong
}

// sortFilter sorts strings ignoring case, as Jinja does.
func sortFilter(_ *run, args []any, named *Dict) (any, error) {
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
		return foldCase(v, given["case_sensitive"]), nil
	}
	return sortedBy(l, key, truth(given["reverse"]))
}

// path returns an attribute, or an attribute of one: "function.name".
func path(v any, name string) (_ any, err error) {
	for _, part := range strings.Split(name, ".") {
		if n, number := parseInt(part, 10); number == nil {
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

func joinFilter(_ *run, args []any, named *Dict) (any, error) {
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

// attributes returns an attribute of every item. Items without it get otherwise, if
// that is not nil.
func attributes(v any, name string, otherwise any) (*List, error) {
	l, err := items(v)
	if err != nil {
		return nil, err
	}
	list := &List{Items: make([]any, len(l)), view: generator}
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

// mapFilter returns an attribute of each item, or applies a filter to each.
func mapFilter(r *run, args []any, named *Dict) (any, error) {
	if !truth(args[0]) {
		return &List{view: generator}, nil
	}
	if name, ok := named.Values["attribute"]; ok {
		return attributes(args[0], text(name), named.Values["default"])
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
	list := &List{Items: make([]any, len(l)), view: generator}
	for i, item := range l {
		if list.Items[i], err = r.call(f, append([]any{item}, args[2:]...), named); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// selectFilter returns the items (wanted) or drops the items (not wanted) for which a
// test holds, on the item itself or on an attribute. Without a test, their truth
// decides.
func selectFilter(attribute, wanted bool) function {
	return func(_ *run, args []any, _ *Dict) (any, error) {
		chosen := &List{view: generator}
		if !truth(args[0]) {
			return chosen, nil
		}
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
			if ok == wanted {
				chosen.Items = append(chosen.Items, item)
			}
		}
		return chosen, nil
	}
}
