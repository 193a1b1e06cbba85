package jinja

import (
	"math"
	"strings"
)

// test is a predicate that may follow "is", with its arguments.
type test func(r *run, v any, args []any) bool

var tests = map[string]test{
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
	"lower": func(r *run, v any, _ []any) bool {
		return isCase(r.string(r.text(v)), strings.ToLower, strings.ToUpper)
	},
	"upper": func(r *run, v any, _ []any) bool {
		return isCase(r.string(r.text(v)), strings.ToUpper, strings.ToLower)
	},

	"odd":         divides(func(n int64) bool { return n%2 != 0 }),
	"even":        divides(func(n int64) bool { return n%2 == 0 }),
	"divisibleby": divisible,
	"sameas":      comparing(func(r *run, a, b any) bool { return typeName(a) == typeName(b) && r.equal(a, b) }),
}

func init() {
	for name, operator := range map[string]string{
		"in": "in", "eq": "==", "equalto": "==", "ne": "!=", "lt": "<", "lessthan": "<", "le": "<=", "gt": ">", "greaterthan": ">", "ge": ">=",
		"==": "==", "!=": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">=",
	} {
		tests[name] = comparing(comparators[operator])
	}
}

// iterable reports whether a value can be looped over.
func iterable(v any) bool {
	switch v.(type) {
	case undefined, *List, *Dict, string:
		return true
	}
	return false
}

// sequence reports whether a value has a length and can be indexed.
func sequence(v any) bool {
	if l, ok := v.(*List); ok && l.view != "" {
		return l.view == "range"
	}
	return iterable(v)
}

// isCase reports whether a string is in one case, and would change in the other.
func isCase(s string, same, other func(string) string) bool { return same(s) == s && other(s) != s }

func is(holds func(any) bool) test {
	return func(_ *run, v any, _ []any) bool { return holds(v) }
}

func isType[T any](_ *run, v any, _ []any) bool {
	_, ok := v.(T)
	return ok
}

// comparing makes a test with one argument of a comparison.
func comparing(holds comparator) test {
	return func(r *run, v any, args []any) bool {
		if len(args) != 1 {
			panic(failf("a test with %d arguments, it takes 1", len(args)))
		}
		return holds(r, v, args[0])
	}
}

func divides(holds func(int64) bool) test {
	return func(_ *run, v any, _ []any) bool {
		if f, ok := v.(float64); ok {
			return f == math.Trunc(f) && holds(int64(f))
		}
		n, ok := asInt(v)
		if !ok {
			panic(failf("%s is neither odd nor even", typeName(v)))
		}
		return holds(n)
	}
}

func divisible(r *run, v any, args []any) bool {
	n, ok := asInt(v)
	if !ok || len(args) != 1 {
		panic(failf("divisibleby compares two integers"))
	}
	by, ok := asInt(args[0])
	if !ok || by == 0 {
		panic(failf("divisible by %s", r.repr(args[0])))
	}
	return n%by == 0
}
