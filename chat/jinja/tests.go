package jinja

import (
	"errors"
	"fmt"
	"math"
	"strings"
)

// tests are the predicates that may follow "is".
var tests = map[string]func(v any, args []any) (bool, error){
	"defined":   is(func(v any) bool { return !isUndefined(v) }),
	"undefined": is(isUndefined),
	"none":      is(func(v any) bool { return v == nil }),
	"true":      is(func(v any) bool { return v == true }),
	"false":     is(func(v any) bool { return v == false }),
	"boolean":   isType[bool],
	"integer":   isType[int64],
	"float":     isType[float64],
	"string":    isType[string],
	"mapping":   is(func(v any) bool { d, ok := v.(*Dict); return ok && !d.namespace }),
	"callable":  is(func(v any) bool { _, ok := v.(function); return ok || isUndefined(v) }),
	"number":    is(func(v any) bool { _, ok := asFloat(v); return ok }),
	"iterable":  is(iterable),
	"sequence":  is(sequence),
	"lower":     is(func(v any) bool { s := text(v); return strings.ToLower(s) == s && strings.ToUpper(s) != s }),
	"upper":     is(func(v any) bool { s := text(v); return strings.ToUpper(s) == s && strings.ToLower(s) != s }),

	"odd":         divides(func(n int64) bool { return n%2 != 0 }),
	"even":        divides(func(n int64) bool { return n%2 == 0 }),
	"divisibleby": divisible,
	"sameas":      comparisonTest(func(a, b any) (bool, error) { return typeName(a) == typeName(b) && equal(a, b), nil }),
	"in":          comparisonTest(func(a, b any) (bool, error) { return contains(b, a) }),

	"eq": comparisonTest(isEqual), "equalto": comparisonTest(isEqual), "ne": comparisonTest(func(a, b any) (bool, error) { return !equal(a, b), nil }),
	"lt": comparisonTest(ordered(func(c int) bool { return c < 0 })), "lessthan": comparisonTest(ordered(func(c int) bool { return c < 0 })),
	"gt": comparisonTest(ordered(func(c int) bool { return c > 0 })), "greaterthan": comparisonTest(ordered(func(c int) bool { return c > 0 })),
	"==": comparisonTest(isEqual), "!=": comparisonTest(func(a, b any) (bool, error) { return !equal(a, b), nil }),
	"<": comparisonTest(ordered(func(c int) bool { return c < 0 })), ">": comparisonTest(ordered(func(c int) bool { return c > 0 })),
	"<=": comparisonTest(ordered(func(c int) bool { return c <= 0 })), ">=": comparisonTest(ordered(func(c int) bool { return c >= 0 })),
	"le": comparisonTest(ordered(func(c int) bool { return c <= 0 })), "ge": comparisonTest(ordered(func(c int) bool { return c >= 0 })),
}

// iterable reports whether a value can be looped over. It does not use up a generator.
func iterable(v any) bool {
	if _, ok := v.(*List); ok {
		return true
	}
	_, err := items(v)
	return err == nil
}

// sequence reports whether a value has a length and can be indexed.
func sequence(v any) bool {
	if l, ok := v.(*List); ok && l.view != "" {
		return l.view == "range"
	}
	_, err := length(v)
	return err == nil
}

func isEqual(a, b any) (bool, error) { return equal(a, b), nil }

func is(holds func(any) bool) func(any, []any) (bool, error) {
	return func(v any, _ []any) (bool, error) { return holds(v), nil }
}

func isType[T any](v any, _ []any) (bool, error) {
	_, ok := v.(T)
	return ok, nil
}

// comparisonTest makes a test with one argument of a comparison.
func comparisonTest(holds func(a, b any) (bool, error)) func(any, []any) (bool, error) {
	return func(v any, args []any) (bool, error) {
		if len(args) != 1 {
			return false, fmt.Errorf("a test with %d arguments, it takes 1", len(args))
		}
		return holds(v, args[0])
	}
}

func divides(holds func(int64) bool) func(any, []any) (bool, error) {
	return func(v any, _ []any) (bool, error) {
		if f, ok := v.(float64); ok {
			return f == math.Trunc(f) && holds(int64(f)), nil
		}
		n, ok := asInt(v)
		if !ok {
			return false, fmt.Errorf("%s is neither odd nor even", typeName(v))
		}
		return holds(n), nil
	}
}

func divisible(v any, args []any) (bool, error) {
	n, ok := asInt(v)
	if !ok || len(args) != 1 {
		return false, errors.New("divisibleby compares two integers")
	}
	by, ok := asInt(args[0])
	if !ok || by == 0 {
		return false, fmt.Errorf("divisible by %s", repr(args[0]))
	}
	return n%by == 0, nil
}
