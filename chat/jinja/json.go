package jinja

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
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
}

func (s jsonStyle) write(b *strings.Builder, v any, level int) error {
	if level > maxDepth {
		return fmt.Errorf("tojson of values nested more than %d deep", maxDepth)
	}
	switch v := v.(type) {
	case nil:
		b.WriteString("null")
	case bool, int64:
		b.WriteString(strings.ToLower(repr(v)))
	case float64:
		b.WriteString(jsonFloat(v))
	case string:
		s.quote(b, v)
	case *List:
		if v.view == "" {
			return s.list(b, v, level)
		}
		return fmt.Errorf("%s cannot be written as JSON; apply the filter list first", v.view)
	case *Dict:
		if !v.namespace {
			return s.dict(b, v, level)
		}
		return errors.New("a namespace cannot be written as JSON")
	default:
		return fmt.Errorf("%s cannot be written as JSON", typeName(v))
	}
	return nil
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

func (s jsonStyle) list(b *strings.Builder, l *List, level int) error {
	if len(l.Items) == 0 {
		b.WriteString("[]")
		return nil
	}
	for i, item := range l.Items {
		s.separate(b, i, level+1, "[")
		if err := s.write(b, item, level+1); err != nil {
			return err
		}
	}
	s.line(b, level)
	b.WriteString("]")
	return nil
}

func (s jsonStyle) dict(b *strings.Builder, d *Dict, level int) error {
	if len(d.Keys) == 0 {
		b.WriteString("{}")
		return nil
	}
	names := d.Keys
	if s.sorted {
		names = slices.Clone(names)
		var wrong error
		slices.SortFunc(names, func(a, b any) int {
			c, err := compare(a, b)
			wrong = errors.Join(wrong, err)
			return c
		})
		if wrong != nil {
			return wrong
		}
	}
	for i, k := range names {
		s.separate(b, i, level+1, "{")
		s.quote(b, jsonKey(k))
		b.WriteString(s.keySeparator)
		if err := s.write(b, d.value(k), level+1); err != nil {
			return err
		}
	}
	s.line(b, level)
	b.WriteString("}")
	return nil
}

// jsonKey converts a dictionary key to a string, as JSON keys must be.
func jsonKey(k any) string {
	if k == nil {
		return "null"
	}
	if _, ok := k.(bool); ok {
		return strings.ToLower(text(k))
	}
	return text(k)
}

// separate writes what precedes item i: the opening bracket or a separator, and a line
// break if the style has one.
func (s jsonStyle) separate(b *strings.Builder, i, level int, open string) {
	if i == 0 {
		b.WriteString(open)
	} else {
		b.WriteString(s.itemSeparator)
	}
	s.line(b, level)
}

func (s jsonStyle) line(b *strings.Builder, level int) {
	if s.multiline {
		b.WriteString("\n" + strings.Repeat(s.indent, level))
	}
}

func (s jsonStyle) quote(b *strings.Builder, text string) {
	short := map[rune]string{'"': `\"`, '\\': `\\`, '\n': `\n`, '\r': `\r`, '\t': `\t`, '\b': `\b`, '\f': `\f`}
	b.WriteByte('"')
	for _, c := range text {
		escaped, ok := short[c]
		switch {
		case ok:
			b.WriteString(escaped)
		case c < ' ' || s.ascii && c > '~' && c < 0x10000:
			fmt.Fprintf(b, `\u%04x`, c)
		case s.ascii && c > 0xffff:
			c -= 0x10000
			fmt.Fprintf(b, `\u%04x\u%04x`, 0xd800+c>>10, 0xdc00+c&0x3ff)
		default:
			b.WriteRune(c)
		}
	}
	b.WriteByte('"')
}

// tojson is the filter tojson.
func tojson(_ *run, args []any, named *Dict) (any, error) {
	given, err := bind("tojson", args, named, "value", "ensure_ascii", "indent", "separators", "sort_keys")
	if err != nil {
		return nil, err
	}
	s := jsonStyle{itemSeparator: ", ", keySeparator: ": ", ascii: truth(given["ensure_ascii"]), sorted: truth(given["sort_keys"])}
	if n, ok := asInt(given["indent"]); ok {
		s.multiline, s.itemSeparator, s.indent = true, ",", strings.Repeat(" ", int(min(max(n, 0), maxDepth)))
	} else if tab, ok := given["indent"].(string); ok {
		s.multiline, s.itemSeparator, s.indent = true, ",", tab
	}
	if l, ok := given["separators"].(*List); ok && len(l.Items) == 2 {
		s.itemSeparator, s.keySeparator = text(l.Items[0]), text(l.Items[1])
	}
	var b strings.Builder
	err = s.write(&b, given["value"], 0)
	return b.String(), err
}

// parseFloat and parseInt parse numbers as Python's float and int do.
func parseFloat(s string) (float64, error) { return strconv.ParseFloat(strings.TrimSpace(s), 64) }

func parseInt(s string, base int) (int64, error) {
	s = strings.ReplaceAll(strings.ToLower(strings.TrimSpace(s)), "_", "")
	if prefix, ok := map[int]string{2: "0b", 8: "0o", 16: "0x"}[base]; ok {
		s = strings.TrimPrefix(s, prefix)
	}
	return strconv.ParseInt(s, base, 64)
}
