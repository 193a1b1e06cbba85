package jinja

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
)

// text returns what Python's str returns, and "" for an undefined value.
func text(v any) string {
	switch v := v.(type) {
	case undefined:
		return ""
	case string:
		return v
	}
	return repr(v)
}

// repr returns what Python's repr returns.
func repr(v any) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case bool:
		if v {
			return "True"
		}
		return "False"
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		return floatText(v)
	case string:
		return quote(v)
	case *List:
		return listText(v)
	case *Dict:
		parts := make([]string, len(v.Keys))
		for i, k := range v.Keys {
			parts[i] = repr(k) + ": " + repr(v.value(k))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case undefined:
		return "Undefined"
	}
	return "<function>"
}

func listText(l *List) string {
	parts := make([]string, len(l.Items))
	for i, item := range l.Items {
		parts[i] = repr(item)
	}
	inner := strings.Join(parts, ", ")
	switch {
	case l.view == "range":
		return rangeText(l.Items)
	case l.view != "":
		return l.view + "([" + inner + "])"
	case !l.Tuple:
		return "[" + inner + "]"
	case len(parts) == 1:
		inner += ","
	}
	return "(" + inner + ")"
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
		s := strconv.FormatFloat(f, 'e', -1, 64)
		return s
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// quote writes a string as a Python literal.
func quote(s string) string {
	mark := '\''
	if strings.ContainsRune(s, '\'') && !strings.ContainsRune(s, '"') {
		mark = '"'
	}
	var b strings.Builder
	b.WriteRune(mark)
	for _, c := range s {
		switch {
		case c == mark || c == '\\':
			b.WriteRune('\\')
			b.WriteRune(c)
		case c == '\n':
			b.WriteString(`\n`)
		case c == '\r':
			b.WriteString(`\r`)
		case c == '\t':
			b.WriteString(`\t`)
		case c == ' ' || unicode.IsPrint(c):
			b.WriteRune(c)
		case c < 0x100:
			fmt.Fprintf(&b, `\x%02x`, c)
		case c < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, c)
		default:
			fmt.Fprintf(&b, `\U%08x`, c)
		}
	}
	b.WriteRune(mark)
	return b.String()
}
