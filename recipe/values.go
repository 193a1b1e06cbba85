package recipe

import (
	"flag"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// value is a setting that is read at once, so that a mistake in it is found with the others.
type value struct {
	text  string // as a user would write it
	parse func(string) error
	words []string // some that it takes
}

// Words are some that a setting takes, for completion on the command line.
func Words(f *flag.Flag) []string {
	if v, ok := f.Value.(*value); ok {
		return v.words
	}
	return nil
}

// String is the value as a user would write it.
func (v *value) String() string { return v.text }

// Set reads what a user wrote.
func (v *value) Set(text string) error {
	err := v.parse(text)
	if err == nil {
		v.text = text
	}
	return err
}

// parsed declares a setting with its default, and words that it takes.
func parsed(fs *flag.FlagSet, text string, name, help string, parse func(string) error, words ...string) {
	fs.Var(&value{text, parse, words}, name, help)
}

// enum is one of some words. An empty default is shown as nothing.
func enum[T ~string](fs *flag.FlagSet, to *T, name, help string, words ...T) {
	var list []string
	for _, w := range words {
		if w != "" {
			list = append(list, string(w))
		}
	}
	parsed(fs, string(*to), name, help, func(text string) error {
		if !slices.Contains(words, T(text)) {
			return fmt.Errorf("it is one of %s", strings.Join(list, ", "))
		}
		*to = T(text)
		return nil
	}, list...)
}

// enumAs is one of some words, each of which stands for a value.
func enumAs[T comparable](fs *flag.FlagSet, to *T, name, help string, words map[string]T) {
	usual := ""
	for word, of := range words {
		if of == *to {
			usual = word
		}
	}
	parsed(fs, usual, name, help, func(text string) error {
		of, ok := words[text]
		if !ok {
			return fmt.Errorf("it is one of %s", strings.Join(slices.Sorted(maps.Keys(words)), ", "))
		}
		*to = of
		return nil
	}, slices.Sorted(maps.Keys(words))...)
}

// atLeast is an integer that may not be below a bound.
func atLeast[T int | int64](fs *flag.FlagSet, to *T, least T, name, help string) {
	text := "" // nothing is said
	if *to >= least {
		text = strconv.FormatInt(int64(*to), 10)
	}
	parsed(fs, text, name, help, func(text string) error {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || int64(T(n)) != n {
			return fmt.Errorf("%q is not an integer", text)
		}
		if T(n) < least {
			return fmt.Errorf("it is at least %d", least)
		}
		*to = T(n)
		return nil
	})
}

// within is a number between two bounds, both included.
func within(fs *flag.FlagSet, to *float64, least, most float64, name, help string) {
	parsed(fs, strconv.FormatFloat(*to, 'g', -1, 64), name, help, func(text string) error {
		x, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return fmt.Errorf("%q is not a number", text)
		}
		if most >= math.MaxFloat64 && !(x >= least && x <= most) {
			return fmt.Errorf("it is a number from %v on", least)
		}
		if !(x >= least && x <= most) {
			return fmt.Errorf("it is a number from %v to %v", least, most)
		}
		*to = x
		return nil
	})
}

// List is a setting with several values. On the command line they are separated by commas,
// or the flag is given several times; a recipe has a list.
type List struct {
	values []string
	whole  bool // commas do not separate
	given  bool // so that the first value replaces the default
	set    func([]string) error
}

// String has commas between the values.
func (l *List) String() string { return strings.Join(l.values, ",") }

// Set adds values; the first one given replaces the default.
func (l *List) Set(text string) error {
	if !l.given {
		l.values, l.given = nil, true
	}
	if l.whole {
		l.values = append(l.values, text)
	} else {
		l.values = append(l.values, strings.Split(text, ",")...)
	}
	return l.set(l.values)
}

// names is a list of words.
func names(fs *flag.FlagSet, to *[]string, name, help string) {
	fs.Var(&List{values: *to, set: func(list []string) error { *to = list; return nil }}, name, help)
}

// files is a list of paths, in which commas mean nothing.
func files(fs *flag.FlagSet, to *[]string, name, help string) {
	fs.Var(&List{values: *to, whole: true, set: func(list []string) error { *to = list; return nil }}, name, help)
}

// numbers is a list of integers.
func numbers(fs *flag.FlagSet, to *[]int, name, help string) {
	fs.Var(&List{set: func(list []string) (err error) {
		out := make([]int, len(list))
		for i, text := range list {
			if out[i], err = strconv.Atoi(text); err != nil {
				return fmt.Errorf("%q is not an integer", text)
			}
		}
		*to = out
		return nil
	}}, name, help)
}

// byName is a list of NAME=VALUE.
func byName[V any](fs *flag.FlagSet, to *map[string]V, parse func(string) (V, error), name, help string) {
	fs.Var(&List{set: func(list []string) (err error) {
		out := map[string]V{}
		for _, pair := range list {
			key, text, _ := strings.Cut(pair, "=")
			if out[key], err = parse(text); err != nil {
				return fmt.Errorf("%q; write it like q_proj=8", pair)
			}
		}
		*to = out
		return nil
	}}, name, help)
}
