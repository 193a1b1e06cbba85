package jinja

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// builder collects a string and counts it as it grows.
type builder struct {
	r *run
	strings.Builder
}

func (b *builder) add(s string) {
	b.count(len(s))
	b.WriteString(s)
}

// count counts bytes that are about to be added.
func (b *builder) count(bytes int) {
	b.r.make(bytes)
	if b.Len()+bytes > maxText {
		panic(failf("a string grows beyond %d bytes", maxText))
	}
}

// text returns what Python's str returns, and "" for an undefined value.
func (r *run) text(v any) string {
	switch v := v.(type) {
	case undefined:
		return ""
	case string:
		return v
	}
	return r.repr(v)
}

// repr returns what Python's repr returns.
func (r *run) repr(v any) string {
	b := builder{r: r}
	b.repr(v)
	return b.String()
}

func (b *builder) repr(v any) {
	b.r.nest()
	switch v := v.(type) {
	case nil:
		b.add("None")
	case bool:
		b.add(strings.ToUpper(strconv.FormatBool(v)[:1]) + strconv.FormatBool(v)[1:])
	case int64:
		b.add(strconv.FormatInt(v, 10))
	case float64:
		b.add(floatText(v))
	case string:
		b.quote(v)
	case *List:
		b.list(v)
	case *Dict:
		b.add("{")
		for i, k := range v.Keys {
			if i > 0 {
				b.add(", ")
			}
			b.repr(k)
			b.add(": ")
			b.repr(v.value(k))
		}
		b.add("}")
	case undefined:
		b.add("Undefined")
	default:
		b.add("<function>")
	}
	b.r.depth--
}

func (b *builder) list(l *List) {
	begin, end := "[", "]"
	switch {
	case l.view == "range":
		b.add(rangeText(l.Items))
		return
	case l.view != "":
		begin, end = l.view+"([", "])"
	case l.Tuple && len(l.Items) == 1:
		begin, end = "(", ",)"
	case l.Tuple:
		begin, end = "(", ")"
	}
	b.add(begin)
	for i, item := range l.Items {
		if i > 0 {
			b.add(", ")
		}
		b.repr(item)
	}
	b.add(end)
}

// rangeText writes a range as Python does. The step of a range with fewer than two
// items is unknown and taken as 1.
func rangeText(list []any) string {
	from, step := int64(0), int64(1)
	if len(list) > 0 {
		from = list[0].(int64)
	}
	if len(list) > 1 {
		step = list[1].(int64) - from
	}
	to := from + step*int64(len(list))
	if step == 1 {
		return fmt.Sprintf("range(%d, %d)", from, to)
	}
	return fmt.Sprintf("range(%d, %d, %d)", from, to, step)
}

// floatText writes the shortest digits that read back as f, with an exponent below 1e-4
// and from 1e16 on, as Python does.
func floatText(f float64) string {
	switch {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	}
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// escaped writes a character, or its escape.
func (b *builder) escaped(c rune, escapes map[rune]string) {
	if e, ok := escapes[c]; ok {
		b.add(e)
		return
	}
	b.count(utf8.RuneLen(c))
	b.WriteRune(c)
}

var pythonEscapes = map[rune]string{'\\': `\\`, '\n': `\n`, '\r': `\r`, '\t': `\t`}

// quote writes a string as a Python literal.
func (b *builder) quote(s string) {
	mark := "'"
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		mark = `"`
	}
	b.add(mark)
	for _, c := range s {
		switch {
		case string(c) == mark:
			b.add(`\` + mark)
		case pythonEscapes[c] != "" || c == ' ' || unicode.IsPrint(c):
			b.escaped(c, pythonEscapes)
		case c < 0x100:
			b.add(fmt.Sprintf(`\x%02x`, c))
		case c < 0x10000:
			b.add(fmt.Sprintf(`\u%04x`, c))
		default:
			b.add(fmt.Sprintf(`\U%08x`, c))
		}
	}
	b.add(mark)
}
