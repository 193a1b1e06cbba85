package optim

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// option is a number, switch or text that a description may set: target is a *float64,
// *int, *bool or *string. A flag is a *float64 that is 0 or 1, written as a switch.
type option struct {
	name   string
	target any
	flag   bool
}

// findOption finds an option by its name.
func findOption(options []option, name string) (option, error) {
	var names []string
	for _, o := range options {
		if o.name == name {
			return o, nil
		}
		names = append(names, o.name)
	}
	return option{}, fmt.Errorf("it has no option %q; its options are %s", name, strings.Join(names, ", "))
}

// readOptions sets what "a=1,b=true,c" says; a name alone is a switch.
func readOptions(options []option, text string) error {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	for item := range strings.SplitSeq(text, ",") {
		name, value, valued := strings.Cut(item, "=")
		if !valued {
			value = "true"
		}
		o, err := findOption(options, strings.TrimSpace(name))
		if err != nil {
			return err
		}
		value, usual := strings.TrimSpace(value), optionText(o)
		switch t := o.target.(type) {
		case *float64:
			if *t, err = strconv.ParseFloat(value, 64); o.flag {
				*t, err = parseFlag(value)
			}
		case *int:
			*t, err = strconv.Atoi(value)
		case *bool:
			*t, err = strconv.ParseBool(value)
		case *string:
			*t = value
		}
		if err != nil {
			return fmt.Errorf("%s=%s is not a value for it; write it like %s=%s", o.name, value, o.name, usual)
		}
	}
	return nil
}

// writeOptions is what readOptions reads, of the options that differ from the others.
func writeOptions(name string, options, defaults []option) string {
	var items []string
	for i, o := range options {
		if text := optionText(o); text != optionText(defaults[i]) {
			items = append(items, o.name+"="+text)
		}
	}
	if len(items) == 0 {
		return name
	}
	return name + ":" + strings.Join(items, ",")
}

func optionText(o option) string {
	switch t := o.target.(type) {
	case *float64:
		if o.flag {
			return strconv.FormatBool(*t != 0)
		}
		return strconv.FormatFloat(*t, 'g', -1, 64)
	}
	return fmt.Sprint(reflect.ValueOf(o.target).Elem())
}

func parseFlag(value string) (float64, error) {
	on, err := strconv.ParseBool(value)
	if on {
		return 1, err
	}
	return 0, err
}
