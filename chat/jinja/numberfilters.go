package jinja

import (
	"math"
	"strconv"
	"strings"
)

// parseFloat and parseInt parse numbers as Python's float and int do.
func parseFloat(s string) (float64, error) { return strconv.ParseFloat(strings.TrimSpace(s), 64) }

func parseInt(s string, base int) (int64, error) {
	s = strings.ReplaceAll(strings.ToLower(strings.TrimSpace(s)), "_", "")
	if prefix, ok := map[int]string{2: "0b", 8: "0o", 16: "0x"}[base]; ok {
		s = strings.TrimPrefix(s, prefix)
	}
	return strconv.ParseInt(s, base, 64)
}

func toInt(_ *run, v any, g given) any {
	base, ok := asInt(g["base"])
	if !ok {
		base = 10
	}
	if s, ok := v.(string); ok {
		if n, err := parseInt(s, int(base)); err == nil {
			return n
		}
		if f, err := parseFloat(s); err == nil {
			v = f
		}
	}
	if f, ok := v.(float64); ok && !math.IsNaN(f) && !math.IsInf(f, 0) {
		return int64(f)
	}
	if n, ok := asInt(v); ok {
		return n
	}
	return g.or("default", int64(0))
}

func toFloat(_ *run, v any, g given) any {
	if s, ok := v.(string); ok {
		if f, err := parseFloat(s); err == nil {
			return f
		}
	} else if f, ok := asFloat(v); ok {
		return f
	}
	return g.or("default", 0.0)
}

func absolute(_ *run, v any) any {
	if n, ok := asInt(v); ok {
		return max(n, -n)
	}
	f, ok := asFloat(v)
	if !ok {
		panic(failf("%s has no absolute value", typeName(v)))
	}
	return math.Abs(f)
}

func round(_ *run, v any, g given) any {
	f, ok := asFloat(v)
	if !ok {
		panic(failf("%s cannot be rounded", typeName(v)))
	}
	digits, _ := asInt(g["precision"])
	by := math.Pow(10, float64(digits))
	n, integer := asInt(v)
	switch {
	case g["method"] == "ceil":
		return math.Ceil(f*by) / by
	case g["method"] == "floor":
		return math.Floor(f*by) / by
	case integer && digits >= 0:
		return n
	case integer:
		return int64(math.RoundToEven(f*by) / by)
	case digits < 0 || digits > 100:
		return math.RoundToEven(f*by) / by
	}
	// Rounding goes by the exact value, as in Python: 2.675 is stored as slightly less.
	rounded, _ := parseFloat(strconv.FormatFloat(f, 'f', int(digits), 64))
	return rounded
}

// sumFilter adds up the items, or an attribute of each.
func sumFilter(r *run, v any, g given) any {
	if name, ok := g["attribute"]; ok && name != nil {
		v = r.attributes(v, r.text(name), nil)
	}
	sum := g.or("start", int64(0))
	for _, item := range r.items(v) {
		sum = r.arithmetic("+", sum, item)
	}
	return sum
}

// extreme returns the smallest item if sign is -1 and the largest if it is 1, by an
// attribute if one is given.
func extreme(name string, sign int) func(r *run, v any, g given) any {
	return func(r *run, v any, g given) any {
		key := r.keyFunction(g)
		var best, bestKey any = undefined{what: "the " + name + " of nothing"}, nil
		for i, item := range r.items(v) {
			if k := key(item); i == 0 || r.compare(k, bestKey)*sign > 0 {
				best, bestKey = item, k
			}
		}
		return best
	}
}
