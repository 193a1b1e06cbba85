package jinja

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// method returns a method of a value, or undefined. No method changes its value.
func method(v any, name string) any {
	switch v := v.(type) {
	case loopState:
		return v.attribute(name)
	case string:
		if m, ok := stringMethods[name]; ok {
			return function(func(r *run, args []any, named *Dict) any {
				r.touch(len(v))
				return m(r, v, positionalArguments(name, args, named))
			})
		}
	case *Dict:
		if m, ok := dictMethods[name]; ok {
			return function(func(r *run, args []any, named *Dict) any {
				return m(r, v, positionalArguments(name, args, named))
			})
		}
	}
	return undefined{name, typeName(v)}
}

// methodParameters are the parameter names of the methods that accept named arguments.
var methodParameters = map[string][]string{"split": {"sep", "maxsplit"}, "rsplit": {"sep", "maxsplit"}}

// arity is the largest number of arguments of a method; 1 if it is not listed.
var arity = map[string]int{
	"items": 0, "keys": 0, "values": 0, "copy": 0, "get": 2, "upper": 0, "lower": 0, "title": 0, "capitalize": 0, "isdigit": 0, "isalpha": 0,
	"isalnum": 0, "isspace": 0, "isupper": 0, "islower": 0, "split": 2, "rsplit": 2, "splitlines": 0, "replace": 3, "format": maxArguments,
}

// positionalArguments puts named arguments in their positions and refuses those that a
// method does not take.
func positionalArguments(name string, args []any, named *Dict) []any {
	most, ok := arity[name]
	if !ok {
		most = 1
	}
	if len(args) > most {
		panic(failf("%s takes at most %d arguments here, %d are given", name, most, len(args)))
	}
	if len(named.Keys) == 0 {
		return args
	}
	names := methodParameters[name]
	given := bind(name, args, named, names...)
	all := make([]any, len(names))
	for i, n := range names {
		all[i] = given[n]
	}
	return all
}

var dictMethods = map[string]func(r *run, d *Dict, args []any) any{
	"items": func(r *run, d *Dict, _ []any) any { return r.entries(d, "dict_items") },
	"keys":  func(r *run, d *Dict, _ []any) any { return r.list(slices.Clone(d.Keys), "dict_keys") },
	"values": func(r *run, d *Dict, _ []any) any {
		values := make([]any, len(d.Keys))
		for i, k := range d.Keys {
			values[i] = d.value(k)
		}
		return r.list(values, "dict_values")
	},
	"copy": func(r *run, d *Dict, _ []any) any { return r.clone(d) },
	"get": func(_ *run, d *Dict, args []any) any {
		if len(args) == 0 {
			panic(failf("get needs a key"))
		}
		if v, found := d.get(args[0]); found {
			return v
		}
		return argument(args, 1)
	},
}

// argument returns argument i, or nil if it is not given.
func argument(args []any, i int) any {
	if i < len(args) {
		return args[i]
	}
	return nil
}

type stringMethod func(r *run, s string, args []any) any

var stringMethods = map[string]stringMethod{
	"strip":  trimming(strings.TrimFunc),
	"lstrip": trimming(strings.TrimLeftFunc),
	"rstrip": trimming(strings.TrimRightFunc),

	"upper":      changing(func(s string) string { return strings.ReplaceAll(strings.ToUpper(s), "ß", "SS") }),
	"lower":      changing(strings.ToLower),
	"title":      changing(title),
	"capitalize": changing(capitalize),
	"isdigit":    every(unicode.IsDigit),
	"isalpha":    every(unicode.IsLetter),
	"isalnum":    every(func(c rune) bool { return unicode.IsLetter(c) || unicode.IsDigit(c) }),
	"isspace":    every(unicode.IsSpace),
	"isupper":    func(r *run, s string, _ []any) any { return tests["upper"](r, s, nil) },
	"islower":    func(r *run, s string, _ []any) any { return tests["lower"](r, s, nil) },

	"startswith":   affix(strings.HasPrefix),
	"endswith":     affix(strings.HasSuffix),
	"removeprefix": onString(func(s, t string) any { return strings.TrimPrefix(s, t) }),
	"removesuffix": onString(func(s, t string) any { return strings.TrimSuffix(s, t) }),
	"count":        onString(func(s, t string) any { return int64(strings.Count(s, t)) }),
	"find":         onString(func(s, t string) any { return runeIndex(s, strings.Index(s, t)) }),
	"rfind":        onString(func(s, t string) any { return runeIndex(s, strings.LastIndex(s, t)) }),
	"index": onString(func(s, t string) any {
		i := strings.Index(s, t)
		if i < 0 {
			panic(failf("%q is not in the string", t))
		}
		return runeIndex(s, i)
	}),

	"split":      splitMethod,
	"rsplit":     rsplitMethod,
	"splitlines": splitLines,
	"partition": onString(func(s, t string) any {
		before, after, found := strings.Cut(s, t)
		if !found {
			t = ""
		}
		return &List{Items: []any{before, t, after}, Tuple: true}
	}),
	"replace": replaceMethod,
	"join":    joinMethod,
	"format":  formatMethod,
}

// trimming makes a method that strips the characters of its argument, white space
// without one.
func trimming(trim func(string, func(rune) bool) string) stringMethod {
	return func(_ *run, s string, args []any) any {
		strips := unicode.IsSpace
		switch chars := argument(args, 0).(type) {
		case nil:
		case string:
			set := map[rune]bool{}
			for _, c := range chars {
				set[c] = true
			}
			strips = func(c rune) bool { return set[c] }
		default:
			panic(failf("stripping %s off a string", typeName(chars)))
		}
		return trim(s, strips)
	}
}

func changing(change func(string) string) stringMethod {
	return func(r *run, s string, _ []any) any { return r.string(change(s)) }
}

func every(holds func(rune) bool) stringMethod {
	return func(_ *run, s string, _ []any) any {
		return s != "" && strings.IndexFunc(s, func(c rune) bool { return !holds(c) }) < 0
	}
}

// onString makes a method of a function with one string argument.
func onString(do func(s, t string) any) stringMethod {
	return func(_ *run, s string, args []any) any {
		t, ok := argument(args, 0).(string)
		if !ok {
			panic(failf("a method of strings that needs a string"))
		}
		return do(s, t)
	}
}

// affix makes a method whose argument is a string or a tuple of strings, one of which
// must hold.
func affix(holds func(s, t string) bool) stringMethod {
	return func(r *run, s string, args []any) any {
		options := []any{argument(args, 0)}
		if l, ok := options[0].(*List); ok {
			options = l.Items
		}
		for _, o := range options {
			t, ok := o.(string)
			if !ok {
				panic(failf("a string cannot start or end with %s", typeName(o)))
			}
			r.touch(len(t))
			if holds(s, t) {
				return true
			}
		}
		return false
	}
}

// runeIndex converts a byte index to one in characters.
func runeIndex(s string, i int) int64 {
	if i < 0 {
		return -1
	}
	return int64(utf8.RuneCountInString(s[:i]))
}

func (r *run) stringList(parts []string) *List {
	r.make(itemBytes * len(parts)) // for the strings themselves
	items := make([]any, len(parts))
	for i, s := range parts {
		items[i] = s
	}
	return r.list(items, "")
}

// splitArguments reads the arguments of split: a separator, "" for white space, and the
// maximum number of splits.
func splitArguments(args []any) (separator string, times int) {
	times = -1
	if n, ok := asInt(argument(args, 1)); ok && n >= 0 {
		times = int(n)
	}
	switch v := argument(args, 0).(type) {
	case nil:
	case string:
		if v == "" {
			panic(failf("splitting at an empty string"))
		}
		separator = v
	default:
		panic(failf("splitting a string at %s", typeName(v)))
	}
	return separator, times
}

func splitMethod(r *run, s string, args []any) any {
	separator, times := splitArguments(args)
	if separator != "" {
		r.make(itemBytes * strings.Count(s, separator))
		if times >= 0 {
			times++ // parts
		}
		return r.stringList(strings.SplitN(s, separator, times))
	}
	var parts []string
	for s = strings.TrimLeftFunc(s, unicode.IsSpace); s != ""; s = strings.TrimLeftFunc(s, unicode.IsSpace) {
		i := strings.IndexFunc(s, unicode.IsSpace)
		if i < 0 || times == len(parts) {
			parts = append(parts, strings.TrimRightFunc(s, unicode.IsSpace))
			break
		}
		parts, s = append(parts, s[:i]), s[i:]
	}
	return r.stringList(parts)
}

func rsplitMethod(r *run, s string, args []any) any {
	separator, times := splitArguments(args)
	var parts []string // from the last to the first
	if separator != "" {
		for i := strings.LastIndex(s, separator); i >= 0 && times != len(parts); i = strings.LastIndex(s, separator) {
			parts, s = append(parts, s[i+len(separator):]), s[:i]
		}
		parts = append(parts, s)
	} else {
		for s = strings.TrimRightFunc(s, unicode.IsSpace); s != ""; s = strings.TrimRightFunc(s, unicode.IsSpace) {
			i := strings.LastIndexFunc(s, unicode.IsSpace)
			if i < 0 || times == len(parts) {
				parts = append(parts, strings.TrimLeftFunc(s, unicode.IsSpace))
				break
			}
			_, size := utf8.DecodeRuneInString(s[i:])
			parts, s = append(parts, s[i+size:]), s[:i]
		}
	}
	slices.Reverse(parts)
	return r.stringList(parts)
}

// lineBreaks turns the line breaks of Python's splitlines into \n.
var lineBreaks = strings.NewReplacer("\r\n", "\n", "\r", "\n", "\v", "\n", "\f", "\n", "\x1c", "\n", "\x1d", "\n", "\x1e", "\n", "\u0085", "\n", "\u2028", "\n", "\u2029", "\n")

func splitLines(r *run, s string, _ []any) any {
	if s == "" {
		return r.list(nil, "")
	}
	return r.stringList(strings.Split(strings.TrimSuffix(r.string(lineBreaks.Replace(s)), "\n"), "\n"))
}

func replaceMethod(r *run, s string, args []any) any {
	before, ok1 := argument(args, 0).(string)
	after, ok2 := argument(args, 1).(string)
	if !ok1 || !ok2 {
		panic(failf("replace needs two strings"))
	}
	times := strings.Count(s, before)
	if n, ok := asInt(argument(args, 2)); ok && n >= 0 {
		times = int(min(n, int64(times)))
	}
	r.make(len(s) + times*max(len(after)-len(before), 0))
	return strings.Replace(s, before, after, times)
}

func joinMethod(r *run, s string, args []any) any {
	list := r.items(argument(args, 0))
	for _, item := range list {
		if _, ok := item.(string); !ok {
			panic(failf("joining strings and %s; the filter join takes both", typeName(item)))
		}
	}
	return r.join(list, s)
}

// formatMethod is str.format with {} only, filled in order.
func formatMethod(r *run, s string, args []any) any {
	if n := strings.Count(s, "{}"); n > len(args) || strings.ContainsAny(strings.ReplaceAll(s, "{}", ""), "{}") {
		panic(failf("format fills {} only, one for each argument"))
	}
	b := builder{r: r}
	for {
		part, rest, found := strings.Cut(s, "{}")
		b.add(part)
		if !found {
			return b.String()
		}
		b.add(r.text(args[0]))
		s, args = rest, args[1:]
	}
}

func title(s string) string {
	start := true
	return strings.Map(func(c rune) rune {
		letter := unicode.IsLetter(c)
		defer func() { start = !letter }()
		if letter && start {
			return unicode.ToTitle(c)
		}
		return unicode.ToLower(c)
	}, s)
}

// titleWords is the filter title. Unlike the method title, it begins words after white
// space, hyphens and opening brackets only.
func titleWords(s string) string {
	start := true
	return strings.Map(func(c rune) rune {
		first := start
		start = unicode.IsSpace(c) || strings.ContainsRune("-({[<", c)
		if first {
			return unicode.ToUpper(c)
		}
		return unicode.ToLower(c)
	}, s)
}

func capitalize(s string) string {
	c, n := utf8.DecodeRuneInString(s)
	if n == 0 {
		return s
	}
	return string(unicode.ToTitle(c)) + strings.ToLower(s[n:])
}
