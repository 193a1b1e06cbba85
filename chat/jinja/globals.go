package jinja

import (
	"fmt"
	"strings"
	"time"
)

// maxRange is the length of the longest range, as in Jinja's sandbox.
const maxRange = 100_000

// globals returns the functions that every template may call.
func globals(now time.Time) *scope {
	clock := func(_ *run, args []any, named *Dict) (any, error) {
		given, err := bind("strftime_now", args, named, "format")
		if err != nil {
			return nil, err
		}
		return strftime(now, text(given["format"]))
	}
	return &scope{names: []binding{
		{"range", function(rangeOf)}, {"namespace", function(namespace)}, {"dict", function(newDict)},
		{"raise_exception", function(raise)}, {"strftime_now", function(clock)},
	}}
}

func raise(_ *run, args []any, named *Dict) (any, error) {
	given, err := bind("raise_exception", args, named, "message")
	if err != nil {
		return nil, err
	}
	return nil, &RefusedError{text(given["message"])}
}

func namespace(r *run, args []any, named *Dict) (any, error) {
	d, err := newDict(r, args, named)
	if err == nil {
		d.(*Dict).namespace = true
	}
	return d, err
}

func newDict(_ *run, args []any, named *Dict) (any, error) {
	d := NewDict()
	for _, a := range args {
		from, ok := a.(*Dict)
		if !ok {
			return nil, fmt.Errorf("a dict of %s", typeName(a))
		}
		d = from.Clone()
	}
	for _, k := range named.Keys {
		d.Set(k.(string), named.Values[k])
	}
	return d, nil
}

func rangeOf(_ *run, args []any, _ *Dict) (any, error) {
	bounds := []int64{0, 0, 1}
	for i, a := range args {
		n, ok := asInt(a)
		if !ok || i > 2 {
			return nil, fmt.Errorf("range takes one to three integers")
		}
		bounds[i] = n
	}
	if len(args) == 1 {
		bounds[0], bounds[1] = 0, bounds[0]
	}
	if bounds[2] == 0 || len(args) == 0 {
		return nil, fmt.Errorf("a range without an end, or by steps of 0")
	}
	l := &List{view: "range"}
	for i := bounds[0]; bounds[2] > 0 && i < bounds[1] || bounds[2] < 0 && i > bounds[1]; i += bounds[2] {
		if l.Items = append(l.Items, i); len(l.Items) > maxRange {
			return nil, fmt.Errorf("a range of more than %d numbers", maxRange)
		}
	}
	return l, nil
}

// layouts maps Python's strftime directives to layouts of package time. The time has no
// zone, as with datetime.now().
var layouts = map[byte]string{
	'Y': "2006", 'm': "01", 'd': "02", 'H': "15", 'M': "04", 'S': "05", 'B': "January", 'b': "Jan", 'A': "Monday", 'a': "Mon",
	'p': "PM", 'I': "03", 'y': "06", 'Z': "", 'z': "", 'F': "2006-01-02", 'T': "15:04:05", 'D': "01/02/06", 'e': "_2", 'j': "002", 'R': "15:04",
}

// strftime formats a time as Python does.
func strftime(now time.Time, format string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			b.WriteByte(format[i])
			continue
		}
		i++
		plain := format[i] == '-' && i+1 < len(format) // %-d drops a leading zero
		if plain {
			i++
		}
		layout, ok := layouts[format[i]]
		switch {
		case format[i] == '%':
			b.WriteByte('%')
		case !ok:
			return "", fmt.Errorf("strftime_now: %%%c is not supported", format[i])
		case plain:
			b.WriteString(strings.TrimLeft(now.Format(layout), "0 "))
		default:
			b.WriteString(now.Format(layout))
		}
	}
	return b.String(), nil
}
