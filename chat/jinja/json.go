package jinja

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"unicode/utf16"
)

// maxDepth limits the nesting of JSON values, blocks and calls.
const maxDepth = 100

// FromJSON parses JSON into a value. Keys keep their order, and integers stay integers.
func FromJSON(raw []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	v, err := decode(d, 0)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more after the value")
	}
	return v, nil
}

func decode(d *json.Decoder, depth int) (any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("values nested more than %d deep", maxDepth)
	}
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch t := t.(type) {
	case json.Number:
		return decodeNumber(t)
	case json.Delim:
		if t == '[' {
			return decodeList(d, depth)
		}
		return decodeDict(d, depth)
	}
	return t, nil
}

func decodeNumber(n json.Number) (any, error) {
	if i, err := n.Int64(); err == nil {
		return i, nil
	}
	if !strings.ContainsAny(n.String(), ".eE") {
		return nil, fmt.Errorf("the number %s has more than 64 bits", n)
	}
	return n.Float64()
}

func decodeList(d *json.Decoder, depth int) (any, error) {
	l := &List{}
	for d.More() {
		v, err := decode(d, depth+1)
		if err != nil {
			return nil, err
		}
		l.Items = append(l.Items, v)
	}
	_, err := d.Token()
	return l, err
}

func decodeDict(d *json.Decoder, depth int) (any, error) {
	dict := NewDict()
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		v, err := decode(d, depth+1)
		if err != nil {
			return nil, err
		}
		dict.Set(key.(string), v)
	}
	_, err := d.Token()
	return dict, err
}

// jsonStyle says how tojson formats, with the options of Python's json.dumps.
type jsonStyle struct {
	indent                      string // written once per level
	multiline                   bool   // one item per line
	itemSeparator, keySeparator string // between items, and after a key
	ascii                       bool
	sorted                      bool
	level                       int // of what is being written
}

// jsonWriter writes a value as JSON.
type jsonWriter struct {
	jsonStyle
	builder
}

func (w *jsonWriter) write(v any) {
	w.r.nest()
	switch v := v.(type) {
	case nil:
		w.add("null")
	case bool, int64:
		w.add(strings.ToLower(w.r.repr(v)))
	case float64:
		w.add(jsonFloat(v))
	case string:
		w.quote(v)
	case *List:
		if v.view != "" {
			panic(failf("%s cannot be written as JSON; apply the filter list first", v.view))
		}
		w.sequence("[", "]", len(v.Items), func(i int) { w.write(v.Items[i]) })
	case *Dict:
		if v.namespace {
			panic(failf("a namespace cannot be written as JSON"))
		}
		names := v.Keys
		if w.sorted {
			names = slices.SortedFunc(slices.Values(names), w.r.compare)
		}
		w.sequence("{", "}", len(names), func(i int) {
			w.quote(jsonKey(w.r, names[i]))
			w.add(w.keySeparator)
			w.write(v.value(names[i]))
		})
	default:
		panic(failf("%s cannot be written as JSON", typeName(v)))
	}
	w.r.depth--
}

// sequence writes n items between brackets, each on a line of its own if the style says
// so.
func (w *jsonWriter) sequence(open, close string, n int, item func(i int)) {
	w.add(open)
	w.level++
	for i := range n {
		if i > 0 {
			w.add(w.itemSeparator)
		}
		w.newline()
		item(i)
	}
	if w.level--; n > 0 {
		w.newline()
	}
	w.add(close)
}

func (w *jsonWriter) newline() {
	if w.multiline {
		w.add("\n")
		for range w.level {
			w.add(w.indent)
		}
	}
}

func jsonFloat(f float64) string {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 0):
		return strings.Replace(floatText(f), "inf", "Infinity", 1)
	}
	return floatText(f)
}

// jsonKey converts a dictionary key to a string, as JSON keys must be.
func jsonKey(r *run, k any) string {
	if k == nil {
		return "null"
	}
	if _, ok := k.(bool); ok {
		return strings.ToLower(r.text(k))
	}
	return r.text(k)
}

var jsonEscapes = map[rune]string{'"': `\"`, '\\': `\\`, '\n': `\n`, '\r': `\r`, '\t': `\t`, '\b': `\b`, '\f': `\f`}

func (w *jsonWriter) quote(text string) {
	w.add(`"`)
	for _, c := range text {
		switch {
		case jsonEscapes[c] == "" && (c < ' ' || w.ascii && c > '~' && c < 0x10000):
			w.add(fmt.Sprintf(`\u%04x`, c))
		case w.ascii && c > 0xffff:
			high, low := utf16.EncodeRune(c)
			w.add(fmt.Sprintf(`\u%04x\u%04x`, high, low))
		default:
			w.escaped(c, jsonEscapes)
		}
	}
	w.add(`"`)
}

// tojson is the filter tojson.
func tojson(r *run, v any, g given) any {
	w := jsonWriter{builder: builder{r: r}}
	w.jsonStyle = jsonStyle{itemSeparator: ", ", keySeparator: ": ", ascii: truth(g["ensure_ascii"]), sorted: truth(g["sort_keys"])}
	if n, ok := asInt(g["indent"]); ok {
		w.multiline, w.itemSeparator, w.indent = true, ",", strings.Repeat(" ", int(min(max(n, 0), maxDepth)))
	} else if tab, ok := g["indent"].(string); ok {
		w.multiline, w.itemSeparator, w.indent = true, ",", tab
	}
	if l, ok := g["separators"].(*List); ok && len(l.Items) == 2 {
		w.itemSeparator, w.keySeparator = r.text(l.Items[0]), r.text(l.Items[1])
	}
	w.write(v)
	return w.String()
}
