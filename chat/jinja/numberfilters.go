package jinja

import (
	"fmt"
	"math"
)

func toInt(v any) (any, error) {
	if s, ok := v.(string); ok {
		if n, err := parseInt(s); err == nil {
			return n, nil
		}
		f, err := parseFloat(s)
		if err != nil {
			return int64(0), nil
		}
		v = f
	}
	if n, ok := whole(v); ok {
		return n, nil
	}
	f, _ := v.(float64)
	return int64(f), nil
}

func toFloat(v any) (any, error) {
	if s, ok := v.(string); ok {
		f, err := parseFloat(s)
		if err != nil {
			return 0.0, nil
		}
		return f, nil
	}
	f, _ := number(v)
	return f, nil
}

func absolute(v any) (any, error) {
	if n, ok := whole(v); ok {
		return max(n, -n), nil
	}
	f, ok := number(v)
	if !ok {
		return nil, fmt.Errorf("%s has no absolute value", typeName(v))
	}
	return math.Abs(f), nil
}

func round(_ *run, args []any, named map[string]any) (any, error) {
	given, err := bind("round", args, named, "value", "precision", "method")
	if err != nil {
		return nil, err
	}
	f, ok := number(given["value"])
	if !ok {
		return nil, fmt.Errorf("%s cannot be rounded", typeName(given["value"]))
	}
	digits, _ := whole(given["precision"])
	by := math.Pow(10, float64(digits))
	switch text(given["method"]) {
	case "ceil":
		return math.Ceil(f*by) / by, nil
	case "floor":
		return math.Floor(f*by) / by, nil
	}
	return math.RoundToEven(f*by) / by, nil
}

func total(v any) (any, error) {
	l, err := items(v)
	sum := any(int64(0))
	for _, item := range l {
		if err != nil {
			break
		}
		sum, err = arithmetic("+", sum, item)
	}
	return sum, err
}

// extreme is the least item for -1, the greatest for 1.
func extreme(v any, sign int) (any, error) {
	l, err := items(v)
	if err != nil || len(l) == 0 {
		return undefined{what: "the extreme of nothing"}, err
	}
	best := l[0]
	for _, item := range l[1:] {
		c, err := compare(item, best)
		if err != nil {
			return nil, err
		}
		if c*sign > 0 {
			best = item
		}
	}
	return best, nil
}
