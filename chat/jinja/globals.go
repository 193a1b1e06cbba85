package jinja

import (
	"strings"
	"time"
)

// maxRange is the length of the longest range, as in Jinja's sandbox.
const maxRange = 100_000

// globals returns the functions that every template may call.
func globals(now time.Time) *scope {
	return &scope{names: []binding{
		{"range", function(rangeOf)},
		{"dict", function(newDict)},
		{"namespace", function(func(r *run, args []any, named *Dict) any {
			d := newDict(r, args, named).(*Dict)
			d.namespace = true
			return d
		})},
		{"raise_exception", function(func(r *run, args []any, named *Dict) any {
			panic(failure{err: &RefusedError{r.text(bind("raise_exception", args, named, "message")["message"])}})
		})},
		{"strftime_now", function(func(r *run, args []any, named *Dict) any {
			return r.strftime(now, r.text(bind("strftime_now", args, named, "format")["format"]))
		})},
	}}
}

func newDict(r *run, args []any, named *Dict) any {
	d := NewDict()
	for _, a := range args {
		from, ok := a.(*Dict)
		if !ok {
			panic(failf("a dict of %s", typeName(a)))
		}
		d = r.clone(from)
	}
	for _, k := range named.Keys {
		d.Set(k.(string), named.Values[k])
	}
	return d
}

func (r *run) clone(d *Dict) *Dict {
	r.make(entryBytes * len(d.Keys))
	return d.Clone()
}

func rangeOf(r *run, args []any, _ *Dict) any {
	bounds := []int64{0, 0, 1}
	for i, a := range args {
		n, ok := asInt(a)
		if !ok || i > 2 {
			panic(failf("range takes one to three integers"))
		}
		bounds[i] = n
	}
	if len(args) == 1 {
		bounds[0], bounds[1] = 0, bounds[0]
	}
	if bounds[2] == 0 || len(args) == 0 {
		panic(failf("a range without an end, or by steps of 0"))
	}
	var numbers []any
	for i := bounds[0]; bounds[2] > 0 && i < bounds[1] || bounds[2] < 0 && i > bounds[1]; i += bounds[2] {
		if numbers = append(numbers, i); len(numbers) > maxRange {
			panic(failf("a range of more than %d numbers", maxRange))
		}
	}
	return r.list(numbers, "range")
}

// layouts maps Python's strftime directives to layouts of package time. The time has no
// zone, as with datetime.now().
var layouts = map[byte]string{
	'Y': "2006", 'm': "01", 'd': "02", 'H': "15", 'M': "04", 'S': "05", 'B': "January", 'b': "Jan", 'A': "Monday", 'a': "Mon",
	'p': "PM", 'I': "03", 'y': "06", 'Z': "", 'z': "", 'F': "2006-01-02", 'T': "15:04:05", 'D': "01/02/06", 'e': "_2", 'j': "002", 'R': "15:04",
}

// strftime formats a time as Python does.
func (r *run) strftime(now time.Time, format string) string {
	b := builder{r: r}
	for {
		before, after, found := strings.Cut(format, "%")
		b.add(before)
		if !found {
			return b.String()
		}
		plain := len(after) > 1 && after[0] == '-' // %-d drops a leading zero
		if plain {
			after = after[1:]
		}
		if after == "" || after[0] == '%' {
			b.add("%")
			format = after[min(1, len(after)):]
			continue
		}
		layout, ok := layouts[after[0]]
		if !ok {
			panic(failf("strftime_now: %%%c is not supported", after[0]))
		}
		text := now.Format(layout)
		if plain {
			text = strings.TrimLeft(text, "0 ")
		}
		b.add(text)
		format = after[1:]
	}
}
