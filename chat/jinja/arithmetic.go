package jinja

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// arithmetic evaluates a op b as Python does.
func (r *run) arithmetic(op string, a, b any) any {
	if op == "~" {
		x, y := r.text(a), r.text(b)
		r.make(len(x) + len(y))
		return x + y
	}
	for _, v := range []any{a, b} {
		if u, ok := v.(undefined); ok {
			panic(u.failure())
		}
	}
	if v := r.sequenceArithmetic(op, a, b); v != nil {
		return v
	}
	i, isInt1 := asInt(a)
	j, isInt2 := asInt(b)
	if isInt1 && isInt2 && op != "/" && !(op == "**" && j < 0) {
		return integers(op, i, j)
	}
	x, ok1 := asFloat(a)
	y, ok2 := asFloat(b)
	if !ok1 || !ok2 {
		panic(failf("%s %s %s cannot be computed", typeName(a), op, typeName(b)))
	}
	return floats(op, x, y)
}

// sequenceArithmetic evaluates + and * for strings and lists, and % for strings. It
// returns nil if the operands are something else.
func (r *run) sequenceArithmetic(op string, a, b any) any {
	if _, ok := asInt(a); ok && op == "*" {
		a, b = b, a
	}
	n, counted := asInt(b)
	if op == "*" && counted {
		n = min(max(n, 0), maxText+1) // so many of anything are too many
		r.make(int(n) * shallowSize(a))
	}
	switch a := a.(type) {
	case string:
		other, ok := b.(string)
		switch {
		case op == "+" && ok:
			r.make(len(a) + len(other))
			return a + other
		case op == "*" && counted:
			return strings.Repeat(a, int(n))
		case op == "%":
			return r.percentFormat(a, b)
		}
	case *List:
		other, ok := b.(*List)
		switch {
		case op == "+" && ok && (a.view != "" || typeName(a) != typeName(other)):
			panic(failf("%s + %s cannot be computed", typeName(a), typeName(other)))
		case op == "+" && ok:
			r.make(itemBytes * (len(a.Items) + len(other.Items)))
			return &List{Items: slices.Concat(a.Items, other.Items), Tuple: a.Tuple}
		case op == "*" && counted:
			return &List{Items: slices.Repeat(a.Items, int(n)), Tuple: a.Tuple}
		}
	}
	return nil
}

func integers(op string, i, j int64) any {
	switch op {
	case "+":
		return i + j
	case "-":
		return i - j
	case "*":
		return i * j
	case "**":
		return intPower(i, j)
	}
	if j == 0 {
		panic(failf("division by zero"))
	}
	quotient, rest := i/j, i%j
	if rest != 0 && (rest < 0) != (j < 0) {
		quotient, rest = quotient-1, rest+j
	}
	if op == "//" {
		return quotient
	}
	return rest
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

func floats(op string, x, y float64) any {
	switch op {
	case "+":
		return x + y
	case "-":
		return x - y
	case "*":
		return x * y
	case "**":
		return math.Pow(x, y)
	}
	if y == 0 {
		panic(failf("division by zero"))
	}
	switch op {
	case "/":
		return x / y
	case "//":
		return math.Floor(x / y)
	}
	return x - y*math.Floor(x/y)
}

// percentFormat is Python's format % v, with %s, %d, %r and %%.
func (r *run) percentFormat(format string, v any) string {
	values := []any{v}
	l, ok := v.(*List)
	tuple := ok && l.Tuple
	if tuple {
		values = l.Items
	}
	b := builder{r: r}
	for {
		before, after, found := strings.Cut(format, "%")
		b.add(before)
		if !found {
			break
		}
		if after == "" {
			panic(failf("a format that ends with %%"))
		}
		format = after[1:]
		if after[0] == '%' {
			b.add("%")
			continue
		}
		if len(values) == 0 {
			panic(failf("fewer values than the format has places"))
		}
		b.add(r.directive(after[0], values[0]))
		values = values[1:]
	}
	if tuple && len(values) > 0 {
		panic(failf("more values than the format has places"))
	}
	return b.String()
}

// directive formats a value as the letter after a percent sign says.
func (r *run) directive(letter byte, v any) string {
	switch letter {
	case 's':
		return r.text(v)
	case 'r':
		return r.repr(v)
	case 'd':
		if f, ok := v.(float64); ok {
			return strconv.FormatInt(int64(f), 10)
		}
		if n, ok := asInt(v); ok {
			return strconv.FormatInt(n, 10)
		}
		panic(failf("%%d needs a number, not %s", typeName(v)))
	}
	panic(failf("the format %%%c is not supported; %%s, %%d and %%r are", letter))
}
