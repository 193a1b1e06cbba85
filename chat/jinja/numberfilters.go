package jinja

import (
	"fmt"
	"math"
	"strconv"
)

func toInt(_ *run, args []any, named *Dict) (any, error) {
	given, err := bind("int", args, named, "value", "default", "base")
	if err != nil {
		return nil, err
	}
	base, ok := asInt(given["base"])
	if !ok {
		base = 10
	}
	otherwise, ok := given["default"]
	if !ok {
		otherwise = int64(0)
	}
	v := given["value"]
	if s, ok := v.(string); ok {
		if n, err := parseInt(s, int(base)); err == nil {
			return n, nil
		}
		f, err := parseFloat(s)
		if err != nil {
			return otherwise, nil
		}
		v = f
	}
	if f, ok := v.(float64); ok && !math.IsNaN(f) && !math.IsInf(f, 0) {
		return int64(f), nil
	}
	if n, ok := asInt(v); ok {
		return n, nil
	}
	return otherwise, nil
}

func toFloat(_ *run, args []any, named *Dict) (any, error) {
	given, err := bind("float", args, named, "value", "default")
	if err != nil {
		return nil, err
	}
	if s, ok := given["value"].(string); ok {
		if f, err := parseFloat(s); err == nil {
			return f, nil
		}
	} else if f, ok := asFloat(given["value"]); ok {
		return f, nil
	}
	if otherwise, ok := given["default"]; ok {
		return otherwise, nil
	}
	return 0.0, nil
}

func absolute(v any) (any, error) {
	if n, ok := asInt(v); ok {
		return max(n, -n), nil
	}
	f, ok := asFloat(v)
	if !ok {
		return nil, fmt.Errorf("%s has no absolute value", typeName(v))
	}
	return math.Abs(f), nil
}

func round(_ *run, args []any, named *Dict) (any, error) {
	given, err := bind("round", args, named, "value", "precision", "method")
	if err != nil {
		return nil, err
	}
	f, ok := asFloat(given["value"])
	if !ok {
		return nil, fmt.Errorf("%s cannot be rounded", typeName(given["value"]))
	}
	digits, _ := asInt(given["precision"])
	by := math.Pow(10, float64(digits))
	n, integer := asInt(given["value"])
	switch text(given["method"]) {
	case "ceil":
		return math.Ceil(f*by) / by, nil
	case "floor":
		return math.Floor(f*by) / by, nil
	}
	switch {
	case integer && digits >= 0:
		return n, nil
	case integer:
		return int64(math.RoundToEven(f*by) / by), nil
	case digits < 0 || digits > 100:
		return math.RoundToEven(f*by) / by, nil
	}
	// Rounding goes by the exact value, as in Python: 2.675 is stored as slightly less.
	return parseFloat(strconv.FormatFloat(f, 'f', int(digits), 64))
}

// sumFilter adds up the items, or an attribute of each.
func sumFilter(_ *run, args []any, named *Dict) (any, error) {
	given, err := bind("sum", args, named, "value", "attribute", "start")
	if err != nil {
		return nil, err
	}
	v := given["value"]
	if name, ok := given["attribute"]; ok && name != nil {
		if v, err = attributes(v, text(name), nil); err != nil {
			return nil, err
		}
	}
	l, err := items(v)
	sum, ok := given["start"]
	if !ok {
		sum = int64(0)
	}
	for _, item := range l {
		if err != nil {
			break
		}
		sum, err = arithmetic("+", sum, item)
	}
	return sum, err
}

// extremeFilter returns the smallest item if sign is -1 and the largest if it is 1, by
// an attribute if one is given.
func extremeFilter(name string, sign int) function {
	return func(_ *run, args []any, named *Dict) (any, error) {
		given, err := bind(name, args, named, "value", "case_sensitive", "attribute")
		if err != nil {
			return nil, err
		}
		l, err := items(given["value"])
		if err != nil || len(l) == 0 {
			return undefined{what: "the " + name + " of nothing"}, err
		}
		var best, bestKey any
		for i, item := range l {
			key := item
			if attribute, ok := given["attribute"]; ok {
				if key, err = path(item, text(attribute)); err != nil {
					return nil, err
				}
			}
			key = foldCase(key, given["case_sensitive"])
			c := sign
			if i > 0 {
				if c, err = compare(key, bestKey); err != nil {
					return nil, err
				}
			}
			if c*sign > 0 {
				best, bestKey = item, key
			}
		}
		return best, nil
	}
}
