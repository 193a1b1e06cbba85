package op

import (
	"fmt"
	"math"
)

func init() {
	Register(Op{Kind: RMSNorm, Takes: 2, Infer: inferRMSNorm, Cost: costNorm, Reference: referenceRMSNorm, Cases: (*CaseList).norms})
	Register(Op{Kind: RMSNormGrad, Takes: 3, Infer: inferRMSNormGrad, Cost: costNorm, Accumulates: normParams, Reference: referenceRMSNormGrad})
	Register(Op{Kind: LayerNorm, Infer: inferLayerNorm, Cost: costNorm, Reference: referenceLayerNorm})
	Register(Op{Kind: LayerNormGrad, Takes: 3, Infer: inferLayerNormGrad, Cost: costNorm, Accumulates: normParams, Reference: referenceLayerNormGrad})
}

// normParams lists the outputs of a norm's gradient that belong to weight and bias; the
// first output is the gradient of x.
func normParams(a Attr) []int {
	switch {
	case a.InputOnly:
		return nil
	case a.Bias:
		return []int{1, 2}
	}
	return []int{1}
}

// RMSNorm: y = x / sqrt(mean(x²) + eps) · w over groups of len(w) elements of the
// last dimension (one group per head when w is a head norm).
//
//	operands  x, w [G] with G dividing the last dimension
const RMSNorm Kind = "rms_norm"

func inferRMSNorm(a Attr, in []Type) ([]Type, error) {
	return []Type{in[0]}, check(float(in, 0, 1), group(in))
}

// RMSNormGrad: operands x, w, dy; outputs dx, dw.
const RMSNormGrad Kind = "rms_norm_grad"

func inferRMSNormGrad(a Attr, in []Type) ([]Type, error) {
	out := []Type{in[0], in[1]}
	if a.InputOnly {
		out = out[:1]
	}
	return out, check(float(in, 0, 1), group(in), same(in, 0, 2))
}

// LayerNorm: y = (x - mean) / sqrt(var + eps) · w (+ b with Attr.Bias).
//
//	operands  x, w [D], b [D]
const LayerNorm Kind = "layer_norm"

func inferLayerNorm(a Attr, in []Type) ([]Type, error) {
	if err := arity(in, 2, a.Bias); err != nil {
		return nil, err
	}
	if a.Bias {
		if err := same(in, 1, 2); err != nil {
			return nil, err
		}
	}
	return []Type{in[0]}, check(float(in, 0, 1), vector(in, 1, in[0].Shape.Last()))
}

// LayerNormGrad: operands x, w, dy; outputs dx, dw, and db with Attr.Bias.
const LayerNormGrad Kind = "layer_norm_grad"

func inferLayerNormGrad(a Attr, in []Type) ([]Type, error) {
	out := []Type{in[0], in[1], in[1]}[:1+len(normParams(a))]
	return out, check(float(in, 0, 1), vector(in, 1, in[0].Shape.Last()), same(in, 0, 2))
}

// group refuses a norm weight that does not divide the rows.
func group(in []Type) error {
	if len(in[1].Shape) != 1 || in[1].Shape[0] < 1 || in[0].Shape.Last()%in[1].Shape[0] != 0 {
		return fmt.Errorf("weight %v does not divide the last dimension of %v", in[1], in[0])
	}
	return nil
}

func costNorm(c Call) Cost { return Cost{Flops: 8 * float64(c.In[0].Shape.Elements())} }

func referenceRMSNorm(c Call, in, out []Array, _ Args) {
	w := in[1].F
	y := rows(out[0].F, int64(len(w)))
	for n, x := range rows(in[0].F, int64(len(w))) {
		inv := inverseRoot(dot(x, x)/float64(len(x)), c.Attr.Eps)
		for i := range x {
			y[n][i] = x[i] * inv * w[i]
		}
	}
}

// With u = x/rms and g = dy·w: dx = (g - u·mean(g·u))/rms, dw = Σ dy·u.
func referenceRMSNormGrad(c Call, in, out []Array, _ Args) {
	dw := make([]float64, len(in[1].F))
	normGrad(in, out[0].F, func(x []float64, dx normRow) {
		inv := inverseRoot(dot(x, x)/float64(len(x)), c.Attr.Eps)
		var along float64
		for i := range x {
			along += dx.g[i] * x[i] * inv / float64(len(x))
			dw[i] += dx.dy[i] * x[i] * inv
		}
		for i := range x {
			dx.out[i] = inv * (dx.g[i] - x[i]*inv*along)
		}
	})
	if !c.Attr.InputOnly {
		copy(out[1].F, dw)
	}
}

func referenceLayerNorm(c Call, in, out []Array, _ Args) {
	w := in[1].F
	y := rows(out[0].F, int64(len(w)))
	for n, x := range rows(in[0].F, int64(len(w))) {
		mean, inv := moments(x, c.Attr.Eps)
		for i := range x {
			y[n][i] = (x[i] - mean) * inv * w[i]
			if c.Attr.Bias {
				y[n][i] += in[2].F[i]
			}
		}
	}
}

// With u = (x-mean)/std and g = dy·w: dx = (g - mean(g) - u·mean(g·u))/std,
// dw = Σ dy·u, db = Σ dy.
func referenceLayerNormGrad(c Call, in, out []Array, _ Args) {
	dw, db := make([]float64, len(in[1].F)), make([]float64, len(in[1].F))
	normGrad(in, out[0].F, func(x []float64, dx normRow) {
		mean, inv := moments(x, c.Attr.Eps)
		var level, along float64
		for i := range x {
			u := (x[i] - mean) * inv
			level += dx.g[i] / float64(len(x))
			along += dx.g[i] * u / float64(len(x))
			dw[i] += dx.dy[i] * u
			db[i] += dx.dy[i]
		}
		for i := range x {
			dx.out[i] = inv * (dx.g[i] - level - (x[i]-mean)*inv*along)
		}
	})
	if c.Attr.InputOnly {
		return
	}
	copy(out[1].F, dw)
	if c.Attr.Bias {
		copy(out[2].F, db)
	}
}

// normRow is one normalized group in a gradient: what arrives, the same times the
// weight, and where the result goes.
type normRow struct{ dy, g, out []float64 }

// normGrad calls f for each group of len(w) elements of x.
func normGrad(in []Array, dx []float64, f func(x []float64, r normRow)) {
	w := in[1].F
	dys, dxs := rows(in[2].F, int64(len(w))), rows(dx, int64(len(w)))
	for n, x := range rows(in[0].F, int64(len(w))) {
		r := normRow{dy: dys[n], g: make([]float64, len(w)), out: dxs[n]}
		for i := range w {
			r.g[i] = r.dy[i] * w[i]
		}
		f(x, r)
	}
}

func moments(x []float64, eps float64) (mean, inverse float64) {
	for _, f := range x {
		mean += f / float64(len(x))
	}
	var variance float64
	for _, f := range x {
		variance += (f - mean) * (f - mean) / float64(len(x))
	}
	return mean, inverseRoot(variance, eps)
}

func inverseRoot(square, eps float64) float64 { return 1 / math.Sqrt(square+eps) }

func (l *CaseList) norms() {
	eps := Attr{Eps: 1e-5}
	for _, n := range []struct {
		name    string
		x, w    []int
		perHead bool
	}{
		{"3x5x7", []int{3, 5, 7}, []int{7}, false},
		{"1 row", []int{1, 64}, []int{64}, false},
		{"9x257", []int{9, 257}, []int{257}, false},
		{"per head", []int{2, 3, 24}, []int{8}, true},
	} {
		x, w := l.X(n.x...), l.X(n.w...)
		l.Add(n.name, RMSNorm, eps, x, w)
		l.norm(n.name, RMSNormGrad, eps, x, w, x)
		if n.perHead {
			continue
		}
		biased := Attr{Eps: 1e-5, Bias: true}
		l.Add(n.name, LayerNorm, eps, x, w)
		l.Add(n.name+" bias", LayerNorm, biased, x, w, w)
		l.norm(n.name, LayerNormGrad, eps, x, w, x)
		l.norm(n.name+" bias", LayerNormGrad, biased, x, w, x)
	}
	l.Add("equal elements", LayerNorm, eps, l.Constant(0.5, 2, 16), l.X(16))
	l.Add("equal elements", LayerNormGrad, eps, l.Constant(0.5, 2, 16), l.X(16), l.X(2, 16))
	l.Add("zeros", RMSNorm, eps, l.Constant(0, 2, 16), l.X(16))
	l.Add("small", RMSNorm, Attr{Eps: 1e-6}, l.Sized(1e-3, 2, 16), l.X(16))
}

// norm adds the three forms of a norm's gradient.
func (l *CaseList) norm(name string, kind Kind, a Attr, in ...Operand) {
	l.Both(name, kind, a, in...)
	a.InputOnly = true
	l.Add(name+" input only", kind, a, in...)
}
