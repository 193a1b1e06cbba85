package jinja

import (
	"errors"
	"strings"
)

// filters are the functions that may follow a bar: v | name(args) calls one with v as
// first argument. init fills the map, because some filters look others up in it.
var filters map[string]function

func init() {
	filters = map[string]function{
		"tojson": tojson,

		"trim":       viaMethod("strip"),
		"upper":      viaMethod("upper"),
		"lower":      viaMethod("lower"),
		"title":      onValue(func(v any) (any, error) { return titleWords(text(v)), nil }),
		"capitalize": viaMethod("capitalize"),
		"replace":    viaMethod("replace"),
		"string":     onValue(func(v any) (any, error) { return text(v), nil }),
		"safe":       onValue(func(v any) (any, error) { return text(v), nil }),
		"escape":     onValue(escape),
		"e":          onValue(escape),
		"indent":     indent,
		"format":     format,
		"wordcount":  onValue(func(v any) (any, error) { return int64(len(strings.Fields(text(v)))), nil }),

		"length": onValue(lengthOf),
		"count":  onValue(lengthOf),
		"first":  onValue(func(v any) (any, error) { return endItem(v, 0) }),
		"last":   onValue(func(v any) (any, error) { return endItem(v, -1) }),
		"list": onValue(func(v any) (any, error) {
			l, err := items(v)
			return &List{Items: l}, err
		}),
		"reverse":    onValue(reverse),
		"unique":     unique,
		"sort":       sortFilter,
		"join":       joinFilter,
		"items":      onValue(itemsOf),
		"dictsort":   dictsort,
		"map":        mapFilter,
		"select":     selectFilter(false, true),
		"reject":     selectFilter(false, false),
		"selectattr": selectFilter(true, true),
		"rejectattr": selectFilter(true, false),

		"default": defaulted,
		"d":       defaulted,
		"int":     toInt,
		"float":   toFloat,
		"abs":     onValue(absolute),
		"round":   round,
		"sum":     sumFilter,
		"min":     extremeFilter("min", -1),
		"max":     extremeFilter("max", 1),
	}
}

func onValue(do func(any) (any, error)) function {
	return func(_ *run, args []any, named *Dict) (any, error) {
		if len(args) > 1 || len(named.Keys) > 0 {
			return nil, errors.New("it takes no arguments")
		}
		return do(args[0])
	}
}

// viaMethod returns a filter that calls the string method of the same name.
func viaMethod(name string) function {
	return func(_ *run, args []any, named *Dict) (any, error) {
		rest := args[1:]
		if chars, ok := named.Values["chars"]; ok {
			rest = append(rest, chars)
		}
		return stringMethods[name](text(args[0]), rest)
	}
}

func escape(v any) (any, error) {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "'", "&#39;", `"`, "&#34;").Replace(text(v)), nil
}

func lengthOf(v any) (any, error) { return length(v) }

func defaulted(_ *run, args []any, named *Dict) (any, error) {
	given, err := bind("default", args, named, "value", "default_value", "boolean")
	if err != nil {
		return nil, err
	}
	v := given["value"]
	if !isUndefined(v) && (truth(v) || !truth(given["boolean"])) {
		return v, nil
	}
	if d, ok := given["default_value"]; ok {
		return d, nil
	}
	return "", nil
}

func indent(_ *run, args []any, named *Dict) (any, error) {
	given, err := bind("indent", args, named, "value", "width", "first", "blank")
	if err != nil {
		return nil, err
	}
	by := "    "
	if n, ok := asInt(given["width"]); ok {
		by = strings.Repeat(" ", int(min(max(n, 0), 1000)))
	} else if s, ok := given["width"].(string); ok {
		by = s
	}
	all := strings.Split(text(given["value"]), "\n")
	for i, line := range all {
		if (i > 0 || truth(given["first"])) && (line != "" || truth(given["blank"])) {
			all[i] = by + line
		}
	}
	return strings.Join(all, "\n"), nil
}

func format(_ *run, args []any, named *Dict) (any, error) {
	if len(named.Keys) > 0 {
		return nil, errors.New("arguments with names are not supported")
	}
	return percentFormat(text(args[0]), &List{Items: args[1:], Tuple: true})
}
