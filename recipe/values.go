package recipe

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"spillway/units"
)

// value is a setting that is more than the values of package flag: text is how it
// stands, set reads it.
type value struct {
	text func() string
	set  func(string) error
}

// String is the value as a user would write it.
func (v *value) String() string {
	if v.text == nil {
		return ""
	}
	return v.text()
}

// Set reads what a user wrote.
func (v *value) Set(text string) error { return v.set(text) }

// enum is one of some words. An empty default is shown as nothing.
func enum[T ~string](fs *flag.FlagSet, to *T, name, help string, words ...T) {
	fs.Var(&value{
		text: func() string { return string(*to) },
		set: func(text string) error {
			if !slices.Contains(words, T(text)) {
				return fmt.Errorf("it is one of %s", joined(words))
			}
			*to = T(text)
			return nil
		},
	}, name, help)
}

// joined lists words: "auto, text, chat".
func joined[T ~string](words []T) string {
	list := make([]string, 0, len(words))
	for _, w := range words {
		if w != "" {
			list = append(list, string(w))
		}
	}
	return strings.Join(list, ", ")
}

// atLeast is an integer that may not be below a bound.
func atLeast[T int | int64](fs *flag.FlagSet, to *T, least T, name, help string) {
	fs.Var(&value{
		text: func() string { return strconv.FormatInt(int64(*to), 10) },
		set: func(text string) error {
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil || int64(T(n)) != n {
				return fmt.Errorf("%q is not an integer", text)
			}
			if T(n) < least {
				return fmt.Errorf("it is at least %d", least)
			}
			*to = T(n)
			return nil
		},
	}, name, help)
}

// within is a number between two bounds, both included.
func within(fs *flag.FlagSet, to *float64, least, most float64, name, help string) {
	fs.Var(&value{
		text: func() string { return strconv.FormatFloat(*to, 'g', -1, 64) },
		set: func(text string) error {
			x, err := strconv.ParseFloat(text, 64)
			if err != nil {
				return fmt.Errorf("%q is not a number", text)
			}
			if !(x >= least && x <= most) {
				return fmt.Errorf("it is a number from %v to %v", least, most)
			}
			*to = x
			return nil
		},
	}, name, help)
}

// parsed is a text that is read at once, so that a mistake in it is found with the others.
func parsed(fs *flag.FlagSet, text string, name, help string, parse func(string) error) {
	fs.Var(&value{
		text: func() string { return text },
		set: func(given string) error {
			if err := parse(given); err != nil {
				return err
			}
			text = given
			return nil
		},
	}, name, help)
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

// Values are those there are now.
func (l *List) Values() []string { return l.values }

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

// enumAs is one of some words, each of which stands for a value. The zero value is shown
// as nothing, or by its word.
func enumAs[T comparable](fs *flag.FlagSet, to *T, name, help string, words map[string]T) {
	fs.Var(&value{
		text: func() string {
			for word, of := range words {
				if of == *to {
					return word
				}
			}
			return ""
		},
		set: func(text string) error {
			of, ok := words[text]
			if !ok {
				return fmt.Errorf("it is one of %s", strings.Join(slices.Sorted(maps.Keys(words)), ", "))
			}
			*to = of
			return nil
		},
	}, name, help)
}

// date is a day such as 2024-07-26.
func date(to *time.Time) flag.Value {
	return &value{
		text: func() string { return to.Format(time.DateOnly) },
		set: func(text string) error {
			day, err := time.Parse(time.DateOnly, text)
			if err != nil {
				return fmt.Errorf("it is a date such as %s", to.Format(time.DateOnly))
			}
			*to = day
			return nil
		},
	}
}

// size is an amount of memory such as 4GiB.
func size(fs *flag.FlagSet, to *units.Bytes, name, help string) {
	parsed(fs, "", name, help, func(text string) (err error) {
		*to, err = units.ParseBytes(text)
		return err
	})
}
