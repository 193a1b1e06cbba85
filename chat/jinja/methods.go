package jinja

import (
	"errors"
	"fmt"
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
			return function(func(_ *run, args []any, named *Dict) (any, error) {
				args, err := positionalArguments(name, args, named)
				if err != nil {
					return nil, err
				}
				return m(v, args)
			})
		}
	case *Dict:
		if m, ok := dictMethods[name]; ok {
			return function(func(_ *run, args []any, named *Dict) (any, error) {
				args, err := positionalArguments(name, args, named)
				if err != nil {
					return nil, err
				}
				return m(v, args)
			})
		}
	}
	return undefined{name, typeName(v)}
}

// methodParameters are the parameter names of the methods that accept named arguments.
var methodParameters = map[string][]string{"split": {"sep", "maxsplit"}, "rsplit": {"sep", "maxsplit"}}

// maxArguments is the largest number of arguments of a method; 1 if it is not listed.
var maxArguments = map[string]int{
	"items": 0, "keys": 0, "values": 0, "copy": 0, "get": 2, "upper": 0, "lower": 0, "title": 0, "capitalize": 0, "isdigit": 0, "isalpha": 0,
	"isalnum": 0, "isspace": 0, "isupper": 0, "islower": 0, "split": 2, "rsplit": 2, "splitlines": 0, "replace": 3, "format": 1000,
}

// positionalArguments puts named arguments in their positions and refuses those that a
// method does not take.
func positionalArguments(name string, args []any, named *Dict) ([]any, error) {
	most, ok := maxArguments[name]
	if !ok {
		most = 1
	}
	if len(args) > most {
		return nil, fmt.Errorf("%s takes at most %d arguments here, %d are given", name, most, len(args))
	}
	if len(named.Keys) == 0 {
		return args, nil
	}
	names := methodParameters[name]
	given, err := bind(name, args, named, names...)
	if err != nil {
		return nil, err
	}
	all := make([]any, len(names))
	for i, n := range names {
		all[i] = given[n]
	}
	return all, nil
}

var dictMethods = map[string]func(d *Dict, args []any) (any, error){
	"items":  func(d *Dict, _ []any) (any, error) { return entries(d), nil },
	"keys":   func(d *Dict, _ []any) (any, error) { return keys(d), nil },
	"values": func(d *Dict, _ []any) (any, error) { return values(d), nil },
	"copy":   func(d *Dict, _ []any) (any, error) { return d.Clone(), nil },
	"get": func(d *Dict, args []any) (any, error) {
		if len(args) == 0 {
			return nil, errors.New("get needs a key")
		}
		v, found, err := d.get(args[0])
		if !found && err == nil {
			v = argument(args, 1, nil)
		}
		return v, err
	},
}

// argument returns argument i, or otherwise if it is not given.
func argument(args []any, i int, otherwise any) any {
	if i < len(args) {
		return args[i]
	}
	return otherwise
}

var stringMethods = map[string]func(s string, args []any) (any, error){
	"strip":  trimming(strings.Trim, strings.TrimFunc),
	"lstrip": trimming(strings.TrimLeft, strings.TrimLeftFunc),
	"rstrip": trimming(strings.TrimRight, strings.TrimRightFunc),

	"upper":      func(s string, _ []any) (any, error) { return strings.ReplaceAll(strings.ToUpper(s), "ß", "SS"), nil },
	"lower":      func(s string, _ []any) (any, error) { return strings.ToLower(s), nil },
	"title":      func(s string, _ []any) (any, error) { return title(s), nil },
	"capitalize": func(s string, _ []any) (any, error) { return capitalize(s), nil },
	"isdigit":    every(unicode.IsDigit),
	"isalpha":    every(unicode.IsLetter),
	"isalnum":    every(func(c rune) bool { return unicode.IsLetter(c) || unicode.IsDigit(c) }),
	"isspace":    every(unicode.IsSpace),
	"isupper":    func(s string, _ []any) (any, error) { return strings.ToUpper(s) == s && strings.ToLower(s) != s, nil },
	"islower":    func(s string, _ []any) (any, error) { return strings.ToLower(s) == s && strings.ToUpper(s) != s, nil },

	"startswith":   affix(strings.HasPrefix),
	"endswith":     affix(strings.HasSuffix),
	"removeprefix": onString(func(s, t string) (any, error) { return strings.TrimPrefix(s, t), nil }),
	"removesuffix": onString(func(s, t string) (any, error) { return strings.TrimSuffix(s, t), nil }),
	"count":        onString(func(s, t string) (any, error) { return int64(strings.Count(s, t)), nil }),
	"find":         onString(func(s, t string) (any, error) { return runeIndex(s, strings.Index(s, t)), nil }),
	"rfind":        onString(func(s, t string) (any, error) { return runeIndex(s, strings.LastIndex(s, t)), nil }),
	"index": onString(func(s, t string) (any, error) {
		if i := strings.Index(s, t); i >= 0 {
			return runeIndex(s, i), nil
		}
		return nil, fmt.Errorf("%s is not in the string", quote(t))
	}),

	"split":      splitMethod,
	"rsplit":     rsplitMethod,
	"splitlines": func(s string, _ []any) (any, error) { return stringList(lines(s)), nil },
	"partition": onString(func(s, t string) (any, error) {
		before, after, found := strings.Cut(s, t)
		if !found {
			t = ""
		}
		return &List{Items: []any{before, t, after}, Tuple: true}, nil
	}),
	"replace": replaceMethod,
	"join":    joinMethod,
	"format":  formatMethod,
}

func trimming(cut func(s, set string) string, space func(string, func(rune) bool) string) func(string, []any) (any, error) {
	return func(s string, args []any) (any, error) {
		set := argument(args, 0, nil)
		if set == nil {
			return space(s, unicode.IsSpace), nil
		}
		chars, ok := set.(string)
		if !ok {
			return nil, fmt.Errorf("stripping %s off a string", typeName(set))
		}
		return cut(s, chars), nil
	}
}

func every(holds func(rune) bool) func(string, []any) (any, error) {
	return func(s string, _ []any) (any, error) {
		return s != "" && strings.IndexFunc(s, func(c rune) bool { return !holds(c) }) < 0, nil
	}
}

// onString makes a method of a function with one string argument.
func onString(do func(s, t string) (any, error)) func(string, []any) (any, error) {
	return func(s string, args []any) (any, error) {
		t, ok := argument(args, 0, nil).(string)
		if !ok {
			return nil, errors.New("a method of strings that needs a string")
		}
		return do(s, t)
	}
}

// affix makes a method whose argument is a string or a tuple of strings, one of which
// must hold.
func affix(holds func(s, t string) bool) func(string, []any) (any, error) {
	return func(s string, args []any) (any, error) {
		options := []any{argument(args, 0, nil)}
		if l, ok := options[0].(*List); ok {
			options = l.Items
		}
		for _, o := range options {
			t, ok := o.(string)
			if !ok {
				return nil, fmt.Errorf("a string cannot start or end with %s", typeName(o))
			}
			if holds(s, t) {
				return true, nil
			}
		}
		return false, nil
	}
}

// runeIndex converts a byte index to one in characters.
func runeIndex(s string, i int) int64 {
	if i < 0 {
		return -1
	}
	return int64(utf8.RuneCountInString(s[:i]))
}

func stringList(parts []string) *List {
	l := &List{Items: make([]any, len(parts))}
	for i, s := range parts {
		l.Items[i] = s
	}
	return l
}

// splitArguments reads the arguments of split: a separator, "" for white space, and the
// maximum number of splits.
func splitArguments(args []any) (separator string, times int, err error) {
	times = -1
	if n, ok := asInt(argument(args, 1, nil)); ok && n >= 0 {
		times = int(n)
	}
	switch v := argument(args, 0, nil).(type) {
	case nil:
	case string:
		if v == "" {
			return "", 0, errors.New("splitting at an empty string")
		}
		separator = v
	default:
		return "", 0, fmt.Errorf("splitting a string at %s", typeName(v))
	}
	return separator, times, nil
}

func splitMethod(s string, args []any) (any, error) {
	separator, times, err := splitArguments(args)
	if err != nil {
		return nil, err
	}
	if separator != "" {
		if times < 0 {
			return stringList(strings.Split(s, separator)), nil
		}
		return stringList(strings.SplitN(s, separator, times+1)), nil
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
	return stringList(parts), nil
}

func rsplitMethod(s string, args []any) (any, error) {
	separator, times, err := splitArguments(args)
	if err != nil {
		return nil, err
	}
	var parts []string
	if separator == "" {
		for s = strings.TrimRightFunc(s, unicode.IsSpace); s != ""; s = strings.TrimRightFunc(s, unicode.IsSpace) {
			i := strings.LastIndexFunc(s, unicode.IsSpace)
			if i < 0 || times == len(parts) {
				return stringList(append([]string{strings.TrimLeftFunc(s, unicode.IsSpace)}, parts...)), nil
			}
			_, size := utf8.DecodeRuneInString(s[i:])
			parts, s = append([]string{s[i+size:]}, parts...), s[:i]
		}
		return stringList(parts), nil
	}
	for times < 0 || len(parts) < times {
		i := strings.LastIndex(s, separator)
		if i < 0 {
			break
		}
		parts, s = append([]string{s[i+len(separator):]}, parts...), s[:i]
	}
	return stringList(append([]string{s}, parts...)), nil
}

// lineBreaks turns the line breaks of Python's splitlines into \n.
var lineBreaks = strings.NewReplacer("\r\n", "\n", "\r", "\n", "\v", "\n", "\f", "\n", "\x1c", "\n", "\x1d", "\n", "\x1e", "\n", "\u0085", "\n", "\u2028", "\n", "\u2029", "\n")

func lines(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(lineBreaks.Replace(s), "\n"), "\n")
}

func replaceMethod(s string, args []any) (any, error) {
	old, ok1 := argument(args, 0, nil).(string)
	new, ok2 := argument(args, 1, nil).(string)
	if !ok1 || !ok2 {
		return nil, errors.New("replace needs two strings")
	}
	times := -1
	if n, ok := asInt(argument(args, 2, nil)); ok && n >= 0 {
		times = int(n)
	}
	if found := strings.Count(s, old); len(s)+found*len(new) > maxText && len(new) > 0 {
		return nil, fmt.Errorf("replacing %d times with %d bytes; at most %d bytes are allowed", found, len(new), maxText)
	}
	return strings.Replace(s, old, new, times), nil
}

func joinMethod(s string, args []any) (any, error) {
	l, err := items(argument(args, 0, nil))
	if err != nil {
		return nil, err
	}
	for _, item := range l {
		if _, ok := item.(string); !ok {
			return nil, fmt.Errorf("joining strings and %s; the filter join takes both", typeName(item))
		}
	}
	return join(&List{Items: l}, s)
}

// formatMethod is str.format with {} only, filled in order.
func formatMethod(s string, args []any) (any, error) {
	parts := strings.Split(s, "{}")
	if len(parts)-1 > len(args) || strings.ContainsAny(strings.Join(parts, ""), "{}") {
		return nil, errors.New("format fills {} only, one for each argument")
	}
	var b strings.Builder
	for i, part := range parts {
		b.WriteString(part)
		if i < len(parts)-1 {
			b.WriteString(text(args[i]))
		}
	}
	return b.String(), nil
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
