package kernel

import (
	"math"

	"spillway/op"
)

// Func is an activation.
type Func op.Func

// funcs is how many there are, counted from op.NoFunc.
const funcs = op.Sigmoid + 1

// activation holds the loops of one Func.
type activation struct {
	value      func(dst, x []float32)                   // dst = f(x)
	times      func(dst, x, y []float32)                // dst = f(x)·y
	slopeTimes func(dst, x, y []float32)                // dst = f'(x)·y
	gatedGrad  func(dgate, dup, gate, up, dy []float32) // gradients of f(gate)·up
}

// Value sets dst = f(x).
func (f Func) Value(dst, x []float32) { active.activations[f].value(dst, x[:len(dst)]) }

// Times sets dst = f(x)·y.
func (f Func) Times(dst, x, y []float32) {
	active.activations[f].times(dst, x[:len(dst)], y[:len(dst)])
}

// SlopeTimes sets dst = f'(x)·y: the gradient of x if y is that of f(x).
func (f Func) SlopeTimes(dst, x, y []float32) {
	active.activations[f].slopeTimes(dst, x[:len(dst)], y[:len(dst)])
}

// GatedGrad sets dgate = dy·up·f'(gate) and dup = dy·f(gate).
func (f Func) GatedGrad(dgate, dup, gate, up, dy []float32) {
	n := len(dgate)
	active.activations[f].gatedGrad(dgate, dup[:n], gate[:n], up[:n], dy[:n])
}

// plainFuncs are the functions and their slopes as formulas.
var plainFuncs = [funcs]struct{ value, slope func(x float64) float64 }{
	op.ReLU:     {func(x float64) float64 { return max(x, 0) }, step},
	op.GELU:     {func(x float64) float64 { return x * normalCDF(x) }, func(x float64) float64 { return normalCDF(x) + x*normalDensity(x) }},
	op.GELUTanh: {func(x float64) float64 { return x * sigmoid(tanhArgument(x)) }, geluTanhSlope},
	op.SiLU:     {func(x float64) float64 { return x * sigmoid(x) }, func(x float64) float64 { s := sigmoid(x); return s + x*s*(1-s) }},
	op.Tanh:     {math.Tanh, func(x float64) float64 { t := math.Tanh(x); return 1 - t*t }},
	op.Sigmoid:  {sigmoid, func(x float64) float64 { s := sigmoid(x); return s * (1 - s) }},
}

func step(x float64) float64 {
	if x > 0 {
		return 1
	}
	return 0
}

func sigmoid(x float64) float64       { return 1 / (1 + math.Exp(-x)) }
func normalCDF(x float64) float64     { return (1 + math.Erf(x/math.Sqrt2)) / 2 }
func normalDensity(x float64) float64 { return math.Exp(-x*x/2) / math.Sqrt(2*math.Pi) }

// tanhArgument is 2·√(2/π)·(x + 0.044715·x³): (1 + tanh(u))/2 is sigmoid(2u).
func tanhArgument(x float64) float64 {
	return 2 * math.Sqrt(2/math.Pi) * (x + 0.044715*x*x*x)
}

func geluTanhSlope(x float64) float64 {
	s := sigmoid(tanhArgument(x))
	return s + x*s*(1-s)*2*math.Sqrt(2/math.Pi)*(1+3*0.044715*x*x)
}

// plainActivation makes the loops of a Func in plain Go.
func plainActivation(f op.Func) activation {
	p := plainFuncs[f]
	return activation{
		value: func(dst, x []float32) {
			for i, v := range x {
				dst[i] = float32(p.value(float64(v)))
			}
		},
		times: func(dst, x, y []float32) {
			for i, v := range x {
				dst[i] = float32(p.value(float64(v))) * y[i]
			}
		},
		slopeTimes: func(dst, x, y []float32) {
			for i, v := range x {
				dst[i] = float32(p.slope(float64(v))) * y[i]
			}
		},
		gatedGrad: func(dgate, dup, gate, up, dy []float32) {
			for i, g := range gate {
				value, slope, d := float32(p.value(float64(g))), float32(p.slope(float64(g))), dy[i]
				dgate[i], dup[i] = slope*d*up[i], value*d
			}
		},
	}
}
