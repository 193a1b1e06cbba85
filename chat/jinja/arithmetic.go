package jinja

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

// arithmetic evaluates a op b as Python does.
func arithmetic(op string, a, b any) (any, error) {
	if op == "~" {
		return text(a) + text(b), nil
	}
	for _, v := range []any{a, b} {
		if u, ok := v.(undefined); ok {
			return nil, u.err()
		}
	}
	if v, ok, err := sequenceArithmetic(op, a, b); ok || err != nil {
		return v, err
	}
	i, isInt1 := asInt(a)
	j, isInt2 := asInt(b)
	if isInt1 && isInt2 && op != "/" && !(op == "**" && j < 0) {
		return integers(op, i, j)
	}
	x, ok1 := asFloat(a)
	y, ok2 := asFloat(b)
	if !ok1 || !ok2 {
		return nil, fmt.Errorf("%s %s %s cannot be computed", typeName(a), op, typeName(b))
	}
	return floats(op, x, y)
}

// sequenceArithmetic evaluates + and * for strings and lists, and % for strings. The
// boolean is false if the operands are something else.
func sequenceArithmetic(op string, a, b any) (any, bool, error) {
	if _, ok := asInt(a); ok && op == "*" {
		a, b = b, a
	}
	n, counted := asInt(b)
	switch a := a.(type) {
	case string:
		other, ok := b.(string)
		switch {
		case op == "+" && ok:
			return a + other, true, nil
		case op == "*" && counted:
			if int64(len(a)) > maxText/max(n, 1) {
				return nil, false, fmt.Errorf("%d bytes repeated %d times; at most %d bytes are allowed", len(a), n, maxText)
			}
			return strings.Repeat(a, int(max(n, 0))), true, nil
		case op == "%":
			v, err := percentFormat(a, b)
			return v, true, err
		}
	case *List:
		other, ok := b.(*List)
		if op == "+" && ok {
			if a.view != "" || typeName(a) != typeName(other) {
				return nil, false, fmt.Errorf("%s + %s cannot be computed", typeName(a), typeName(other))
			}
			return &List{Items: append(append([]any{}, a.Items...), other.Items...), Tuple: a.Tuple}, true, nil
		}
		if op == "*" && counted {
			if int64(len(a.Items)) > maxRange/max(n, 1) {
				return nil, false, fmt.Errorf("%d items repeated %d times; at most %d items are allowed", len(a.Items), n, maxRange)
			}
			return &List{Items: slices.Repeat(a.Items, int(max(n, 0))), Tuple: a.Tuple}, true, nil
		}
	}
	return nil, false, nil
}

var errZero = errors.New("division by zero")

func integers(op string, i, j int64) (any, error) {
	switch op {
	case "+":
		return i + j, nil
	case "-":
		return i - j, nil
	case "*":
		return i * j, nil
	case "**":
		return intPower(i, j), nil
	}
	if j == 0 {
		return nil, errZero
	}
	quotient, rest := i/j, i%j
	if rest != 0 && (rest < 0) != (j < 0) {
		quotient, rest = quotient-1, rest+j
	}
	if op == "//" {
		return quotient, nil
	}
	return rest, nil
}

func intPower(base, exponent int64) int64 {
	result := int64(1)
	for ; exponent > 0; exponent >>= 1 {
		if exponent&1 == 1 {
			result *= base
		}
		base *= base
	}
	return result
}

func floats(op string, x, y float64) (any, error) {
	switch op {
	case "+":
		return x + y, nil
	case "-":
		return x - y, nil
	case "*":
		return x * y, nil
	case "**":
		return math.Pow(x, y), nil
	}
	if y == 0 {
		return nil, errZero
	}
	switch op {
	case "/":
		return x / y, nil
	case "//":
		return math.Floor(x / y), nil
	}
	return x - y*math.Floor(x/y), nil
}

// percentFormat is Python's format % v, with %s, %d, %r and %%.
func percentFormat(format string, v any) (any, error) {
	values := []any{v}
	if l, ok := v.(*List); ok && l.Tuple {
		values = l.Items
	}
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			b.WriteByte(format[i])
			continue
		}
		if i++; i == len(format) {
			return nil, errors.New("a format that ends with %")
		}
		if format[i] == '%' {
			b.WriteByte('%')
			continue
		}
		if len(values) == 0 {
			return nil, errors.New("fewer values than the format has places")
		}
		switch format[i] {
		case 's':
			b.WriteString(text(values[0]))
		case 'd':
			n, ok := asInt(values[0])
			if f, isFloat := values[0].(float64); isFloat {
				n, ok = int64(f), true
			}
			if !ok {
				return nil, fmt.Errorf("%%d needs a number, not %s", typeName(values[0]))
			}
			b.WriteString(text(n))
		case 'r':
			b.WriteString(repr(values[0]))
		default:
			return nil, fmt.Errorf("the format %%%c is not supported; %%s, %%d and %%r are", format[i])
		}
		values = values[1:]
	}
	if l, ok := v.(*List); ok && l.Tuple && len(values) > 0 {
		return nil, errors.New("more values than the format has places")
	}
	return b.String(), nil
}
