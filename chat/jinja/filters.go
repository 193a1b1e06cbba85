package jinja

import (
	"strings"
)

// filters are the functions that may follow a bar: v | name(args) calls one with v as
// first argument. init fills the map, because some filters look others up in it.
var filters map[string]function

// given are the arguments of a filter by the names of its parameters.
type given map[string]any

// or returns an argument, or a default if it is not given.
func (g given) or(name string, otherwise any) any {
	if v, ok := g[name]; ok {
		return v
	}
	return otherwise
}

// filter is a filter with the names of its parameters after the value, separated by
// spaces.
type filter struct {
	parameters string
	do         func(r *run, v any, g given) any
}

// plain is a filter without arguments.
func plain(do func(r *run, v any) any) filter {
	return filter{"", func(r *run, v any, _ given) any { return do(r, v) }}
}

func init() {
	filters = map[string]function{
		"format":     format,
		"map":        mapFilter,
		"select":     selectFilter(false, true),
		"reject":     selectFilter(false, false),
		"selectattr": selectFilter(true, true),
		"rejectattr": selectFilter(true, false),
	}
	for name, f := range map[string]filter{
		"tojson": {"ensure_ascii indent separators sort_keys", tojson},

		"trim":       viaMethod("strip", "chars"),
		"upper":      viaMethod("upper"),
		"lower":      viaMethod("lower"),
		"title":      plain(func(r *run, v any) any { return r.string(titleWords(r.text(v))) }),
		"capitalize": viaMethod("capitalize"),
		"replace":    viaMethod("replace", "old", "new", "count"),
		"string":     plain(func(r *run, v any) any { return r.text(v) }),
		"safe":       plain(func(r *run, v any) any { return r.text(v) }),
		"escape":     plain(escape),
		"e":          plain(escape),
		"indent":     {"width first blank", indent},
		"wordcount":  plain(func(r *run, v any) any { return int64(len(strings.Fields(r.text(v)))) }),

		"length":   plain(lengthOf),
		"count":    plain(lengthOf),
		"first":    plain(func(r *run, v any) any { return itemAt(r.items(v), 0) }),
		"last":     plain(func(r *run, v any) any { return itemAt(r.items(v), -1) }),
		"list":     plain(func(r *run, v any) any { return r.list(r.items(v), "") }),
		"reverse":  plain(reverse),
		"unique":   {"case_sensitive attribute", unique},
		"sort":     {"reverse case_sensitive attribute", sortFilter},
		"join":     {"d attribute", joinFilter},
		"items":    plain(itemsOf),
		"dictsort": {"case_sensitive by reverse", dictsort},

		"default": {"default_value boolean", defaulted},
		"d":       {"default_value boolean", defaulted},
		"int":     {"default base", toInt},
		"float":   {"default", toFloat},
		"abs":     plain(absolute),
		"round":   {"precision method", round},
		"sum":     {"attribute start", sumFilter},
		"min":     {"case_sensitive attribute", extreme("min", -1)},
		"max":     {"case_sensitive attribute", extreme("max", 1)},
	} {
		names := strings.Fields("value " + f.parameters)
		filters[name] = func(r *run, args []any, named *Dict) any {
			g := bind("filter "+name, args, named, names...)
			return f.do(r, g["value"], g)
		}
	}
}

// viaMethod returns a filter that calls a method of strings.
func viaMethod(name string, parameters ...string) filter {
	return filter{strings.Join(parameters, " "), func(r *run, v any, g given) any {
		args := make([]any, len(parameters))
		for i, p := range parameters {
			args[i] = g[p]
		}
		return stringMethods[name](r, r.text(v), args)
	}}
}

var htmlEscapes = map[rune]string{'&': "&amp;", '<': "&lt;", '>': "&gt;", '\'': "&#39;", '"': "&#34;"}

func escape(r *run, v any) any {
	b := builder{r: r}
	for _, c := range r.text(v) {
		b.escaped(c, htmlEscapes)
	}
	return b.String()
}

func lengthOf(_ *run, v any) any {
	n, ok := length(v)
	if !ok {
		panic(failf("%s has no length", typeName(v)))
	}
	return int64(n)
}

func defaulted(_ *run, v any, g given) any {
	if !isUndefined(v) && (truth(v) || !truth(g["boolean"])) {
		return v
	}
	return g.or("default_value", "")
}

func indent(r *run, v any, g given) any {
	by := "    "
	if n, ok := asInt(g["width"]); ok {
		by = strings.Repeat(" ", int(min(max(n, 0), 1000)))
	} else if s, ok := g["width"].(string); ok {
		by = s
	}
	b := builder{r: r}
	for line := range strings.Lines(r.text(v)) {
		if (b.Len() > 0 || truth(g["first"])) && (line != "\n" || truth(g["blank"])) {
			b.add(by)
		}
		b.add(line)
	}
	return b.String()
}

func format(r *run, args []any, named *Dict) any {
	if len(named.Keys) > 0 {
		panic(failf("filter format: arguments with names are not supported"))
	}
	return r.percentFormat(r.text(args[0]), &List{Items: args[1:], Tuple: true})
}

// keyFunction returns what sorting and comparing go by: an item or the attribute of it
// that is asked for, in lower case unless it is case-sensitive.
func (r *run) keyFunction(g given) func(item any) any {
	return func(item any) any {
		if name, ok := g["attribute"]; ok && name != nil {
			item = r.path(item, r.text(name))
		}
		if s, ok := item.(string); ok && !truth(g["case_sensitive"]) {
			return r.string(strings.ToLower(s))
		}
		return item
	}
}
