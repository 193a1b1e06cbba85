package cpu

import (
	"math"

	"spillway/device/cpu/kernel"
	"spillway/op"
)

// plainly says that a function has no vectorized loop.
func plainly(f op.Func) bool { return f > op.Sigmoid }

// function applies a function with loops in plain Go: cheap ones in f32, others in f64.
func function(c op.Call) Program {
	o, a := &pair{}, c.Attr
	alpha, beta := float32(a.Alpha), float32(a.Beta)
	each := func(f func(v float32) float32) Program {
		return elements(c, o.set, func(from, to int) {
			y := o.y[from:to]
			for i, v := range o.x[from:to] {
				y[i] = f(v)
			}
		})
	}
	switch a.Func {
	case op.Exp:
		return elements(c, o.set, func(from, to int) { kernel.Exp(o.y[from:to], o.x[from:to]) })
	case op.LeakyReLU:
		return each(func(v float32) float32 { return max(v, 0) + alpha*min(v, 0) })
	case op.Clamp:
		return each(func(v float32) float32 { return min(max(v, alpha), beta) })
	case op.Hardswish:
		return each(func(v float32) float32 { return v * min(max(v+3, 0), 6) / 6 })
	case op.Hardsigmoid:
		return each(func(v float32) float32 { return min(max(v+3, 0), 6) / 6 })
	case op.Abs:
		return each(func(v float32) float32 { return max(v, -v) })
	case op.Square:
		return each(func(v float32) float32 { return v * v })
	case op.Sqrt:
		return each(func(v float32) float32 { return float32(math.Sqrt(float64(v))) })
	case op.Rsqrt:
		return each(func(v float32) float32 { return float32(1 / math.Sqrt(float64(v))) })
	}
	return each(func(v float32) float32 { return float32(a.Value(float64(v))) })
}

func functionGrad(c op.Call) Program {
	o, a := &triple{}, c.Attr
	return elements(c, o.set, func(from, to int) {
		y, z := o.y[from:to], o.z[from:to]
		for i, v := range o.x[from:to] {
			z[i] = y[i] * float32(a.Slope(float64(v)))
		}
	})
}
