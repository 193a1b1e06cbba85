package jinja

import (
	"slices"
	"strings"
)

func reverse(r *run, v any) any {
	if s, ok := v.(string); ok {
		return r.slice(s, nil, nil, int64(-1))
	}
	l := slices.Clone(r.items(v))
	slices.Reverse(l)
	return r.list(l, generator)
}

// unique drops items that equal an earlier one, or whose attribute does.
func unique(r *run, v any, g given) any {
	key := r.keyFunction(g)
	var chosen, seen []any
	for _, item := range r.items(v) {
		k := key(item)
		if !r.contains(&List{Items: seen}, k) {
			chosen, seen = append(chosen, item), append(seen, k)
		}
	}
	return r.list(chosen, generator)
}

func itemsOf(r *run, v any) any {
	switch v := v.(type) {
	case undefined:
		return r.list(nil, generator)
	case *Dict:
		return r.entries(v, generator)
	}
	panic(failf("%s has no items", typeName(v)))
}

func dictsort(r *run, v any, g given) any {
	d, ok := v.(*Dict)
	if !ok {
		panic(failf("%s has no items", typeName(v)))
	}
	by := 0
	if g["by"] == "value" {
		by = 1
	}
	key := r.keyFunction(given{"case_sensitive": g["case_sensitive"]})
	return r.sorted(r.entries(d, "").Items, func(v any) any { return key(v.(*List).Items[by]) }, truth(g["reverse"]))
}

// sorted sorts a list by a key of its items. The sort is stable.
func (r *run) sorted(list []any, key func(any) any, reverse bool) any {
	type keyed struct{ key, item any }
	all := make([]keyed, len(list))
	for i, item := range list {
		all[i] = keyed{key(item), item}
	}
	slices.SortStableFunc(all, func(a, b keyed) int {
		if reverse {
			return -r.compare(a.key, b.key)
		}
		return r.compare(a.key, b.key)
	})
	sorted := make([]any, len(all))
	for i, k := range all {
		sorted[i] = k.item
	}
	return r.list(sorted, "")
}

// sortFilter sorts strings ignoring case, as Jinja does.
func sortFilter(r *run, v any, g given) any {
	return r.sorted(r.items(v), r.keyFunction(g), truth(g["reverse"]))
}

// path returns an attribute, or an attribute of one: "function.name".
func (r *run) path(v any, name string) any {
	for part := range strings.SplitSeq(name, ".") {
		if n, err := parseInt(part, 10); err == nil {
			v = r.subscript(v, n)
		} else {
			v = r.subscript(v, part)
		}
	}
	return v
}

func (r *run) join(list []any, separator string) string {
	b := builder{r: r}
	for i, item := range list {
		if i > 0 {
			b.add(separator)
		}
		b.add(r.text(item))
	}
	return b.String()
}

func joinFilter(r *run, v any, g given) any {
	if name, ok := g["attribute"].(string); ok {
		v = r.attributes(v, name, nil)
	}
	return r.join(r.items(v), r.text(g.or("d", "")))
}

// attributes returns an attribute of every item. Items without it get otherwise, if
// that is not nil.
func (r *run) attributes(v any, name string, otherwise any) *List {
	var list []any
	for _, item := range r.items(v) {
		a := r.path(item, name)
		if isUndefined(a) && otherwise != nil {
			a = otherwise
		}
		list = append(list, a)
	}
	return r.list(list, generator)
}

// mapFilter returns an attribute of each item, or applies a filter to each.
func mapFilter(r *run, args []any, named *Dict) any {
	if !truth(args[0]) {
		return r.list(nil, generator)
	}
	if name, ok := named.Values["attribute"]; ok {
		return r.attributes(args[0], r.text(name), named.Values["default"])
	}
	if len(args) < 2 {
		panic(failf("map needs the name of a filter, or attribute="))
	}
	f, ok := filters[r.text(args[1])]
	if !ok {
		panic(failf("there is no filter %q", r.text(args[1])))
	}
	var list []any
	for _, item := range r.items(args[0]) {
		list = append(list, r.call(f, append([]any{item}, args[2:]...), named))
	}
	return r.list(list, generator)
}

// selectFilter returns the items (wanted) or drops the items (not wanted) for which a
// test holds, on the item itself or on an attribute. Without a test, their truth
// decides.
func selectFilter(attribute, wanted bool) function {
	return func(r *run, args []any, _ *Dict) any {
		if !truth(args[0]) {
			return r.list(nil, generator)
		}
		rest, name := args[1:], ""
		if attribute {
			if len(rest) == 0 {
				panic(failf("the name of an attribute is missing"))
			}
			name, rest = r.text(rest[0]), rest[1:]
		}
		holds := test(func(_ *run, v any, _ []any) bool { return truth(v) })
		if len(rest) > 0 {
			known, ok := tests[r.text(rest[0])]
			if !ok {
				panic(failf("there is no test %q", r.text(rest[0])))
			}
			holds, rest = known, rest[1:]
		}
		var chosen []any
		for _, item := range r.items(args[0]) {
			r.step()
			v := item
			if attribute {
				v = r.path(item, name)
			}
			if holds(r, v, rest) == wanted {
				chosen = append(chosen, item)
			}
		}
		return r.list(chosen, generator)
	}
}
