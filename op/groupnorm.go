package op

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"spillway/dtype"
)

// GroupNorm: y = f((x - mean)/sqrt(var + eps)·w + b + r). Statistics are of each sample and each of
// Attr.Spatial.Groups groups of neighbouring channels (0: each channel), or over all samples with
// Attr.WholeBatch: group, instance and batch norm. f is Attr.Func, ReLU or none.
//
//	operands  x [B S.. C], then w [C] and b [C] with Attr.Bias, then r as x with Attr.Plus, which goes
//	          with a function, then the running mean and variance [C] with Attr.Running, which are
//	          not read: their gradients are how far they are from the statistics
//	outputs   y, and as f32 mean and (biased) var of all groups
const GroupNorm Kind = "group_norm"

// GroupNormAgain: y of a GroupNorm whose statistics are known. Operands x, w and b with Attr.Bias, r with
// Attr.Plus, mean, var.
const GroupNormAgain Kind = "group_norm_again"

// GroupNormGrad: operands x, w with Attr.Bias, then with a function b with Attr.Bias and r with Attr.Plus, then
// mean, var, dy; outputs dx, dw and db with Attr.Bias unless Attr.InputOnly, dr with Attr.Plus. Where the
// function cuts off is computed again.
const GroupNormGrad Kind = "group_norm_grad"

func init() {
	Register(Op{Kind: GroupNorm, Infer: inferGroupNorm, Cost: costNorm, Reference: referenceGroupNorm, Overwrites: overwritesX, Cases: (*CaseList).groupNorms})
	Register(Op{Kind: GroupNormAgain, Infer: inferGroupNormAgain, Cost: costNorm, Reference: referenceGroupNormAgain, Overwrites: overwritesX})
	Register(Op{Kind: GroupNormGrad, Infer: inferGroupNormGrad, Cost: costNorm, Reference: referenceGroupNormGrad, Overwrites: overwritesX, Accumulates: groupNormParams})
}

// overwritesX: what a norm or its gradient makes may lie where x lies, dr where r lies.
func overwritesX(c Call) []Overwrite {
	list := []Overwrite{{0, 0}}
	if c.Kind == GroupNormGrad && c.Attr.Plus {
		list = append(list, Overwrite{len(c.Out) - 1, c.Attr.NormOperands().Plus})
	}
	return list
}

func groupNormParams(a Attr) []int {
	if !a.Bias || a.InputOnly {
		return nil
	}
	return []int{1, 2}
}

// NormGroups are the groups that a GroupNorm or its gradient has: Sets times Groups, each of Rows rows
// of Width channels.
type NormGroups struct{ Sets, Rows, Groups, Width int64 }

// NormGroups of a call.
func (c Call) NormGroups() NormGroups { return normGroups(c.Attr, c.In[0]) }

func normGroups(a Attr, x Type) NormGroups {
	g := NormGroups{Sets: x.Shape[0], Groups: a.Spatial.Groups}
	if a.WholeBatch {
		g.Sets = 1
	}
	if g.Groups == 0 {
		g.Groups = x.Shape.Last()
	}
	g.Width = x.Shape.Last() / g.Groups
	g.Rows = x.Shape.Rows() / g.Sets
	return g
}

func checkGroups(a Attr, in []Type) (stats Type, err error) {
	if err := rank(in, 0, 2); err != nil {
		return stats, err
	}
	c := in[0].Shape.Last()
	if n := a.Spatial.Groups; n < 0 || n > 0 && c%n != 0 || c < 1 || in[0].Shape.Elements() == 0 {
		return stats, fmt.Errorf("%d groups do not divide the %d channels of %v", n, c, in[0])
	}
	g := normGroups(a, in[0])
	return Type{dtype.F32, []int64{g.Sets * g.Groups}}, float(in, 0)
}

func inferGroupNorm(a Attr, in []Type) ([]Type, error) {
	if err := arity(in, 1, a.Bias, a.Bias, a.Plus, a.Running, a.Running); err != nil {
		return nil, err
	}
	stats, err := checkGroups(a, in)
	if err != nil {
		return nil, err
	}
	if a.Running && (!a.WholeBatch || a.Spatial.Groups != 0) {
		return nil, fmt.Errorf("running statistics are of channels over whole batches")
	}
	n := 1
	if a.Bias {
		n, err = 3, check(float(in, 1, 2), vector(in, 1, in[0].Shape.Last()), vector(in, 2, in[0].Shape.Last()))
	}
	if a.Plus {
		err, n = check(err, same(in, 0, n)), n+1
	}
	for ; n < len(in) && err == nil; n++ {
		err = check(float(in, n), vector(in, n, in[0].Shape.Last()))
	}
	return []Type{in[0], stats, stats}, check(err, normFunc(a))
}

// normFunc refuses functions behind a norm that there are no kernels for.
func normFunc(a Attr) error {
	if a.Func != NoFunc && a.Func != ReLU || a.Plus && a.Func == NoFunc {
		return fmt.Errorf("a norm with the function %q behind a sum: %v; it takes relu, with or without a sum, or none", a.Func, a.Plus)
	}
	return nil
}

func inferGroupNormAgain(a Attr, in []Type) ([]Type, error) {
	if err := arity(in, 3, a.Bias, a.Bias, a.Plus); err != nil {
		return nil, err
	}
	n := len(in) - 2
	out, err := inferGroupNorm(a, in[:n])
	if err == nil && (!in[n].Equal(out[1]) || !in[n+1].Equal(out[2])) {
		err = fmt.Errorf("statistics %v and %v of %v: want %v", in[n], in[n+1], in[0], out[1])
	}
	return out[:min(1, len(out))], err
}

func inferGroupNormGrad(a Attr, in []Type) ([]Type, error) {
	o := a.NormOperands()
	if err := arity(in, o.DY+1); err != nil {
		return nil, err
	}
	stats, err := checkGroups(a, in)
	if err != nil {
		return nil, err
	}
	out := []Type{in[0]}
	for i := 1; i < o.Mean && err == nil; i++ {
		if i == o.Plus {
			err = same(in, 0, i)
		} else {
			err = check(float(in, i), vector(in, i, in[0].Shape.Last()))
		}
	}
	if a.Bias && !a.InputOnly {
		out = append(out, in[1], in[1])
	}
	if a.Plus {
		out = append(out, in[0])
	}
	if err == nil && (!in[o.Mean].Equal(stats) || !in[o.Mean+1].Equal(stats) || !in[o.DY].Equal(in[0])) {
		err = fmt.Errorf("statistics %v, %v and gradient %v of %v: want %v", in[o.Mean], in[o.Mean+1], in[o.DY], in[0], stats)
	}
	return out, check(err, normFunc(a))
}

// NormOperands is where the operands of a GroupNormGrad are, 0 for those that it has not: the weight, the bias,
// what was added, the mean, which the variance follows, and dy.
type NormOperands struct{ Weight, Bias, Plus, Mean, DY int }

// NormOperands of a GroupNormGrad with such attributes.
func (a Attr) NormOperands() (o NormOperands) {
	n := 1
	next := func(there bool, to *int) {
		if there {
			*to = n
			n++
		}
	}
	next(a.Bias, &o.Weight)
	next(a.Bias && a.Func != NoFunc, &o.Bias)
	next(a.Plus, &o.Plus)
	next(true, &o.Mean)
	o.DY = n + 1
	return o
}

// each calls f with the elements of a group and their channels.
func (g NormGroups) each(f func(group int64, elements, channels []int64)) {
	channels := g.Groups * g.Width
	for set := range g.Sets {
		for k := range g.Groups {
			var at, of []int64
			for r := range g.Rows {
				for i := range g.Width {
					c := k*g.Width + i
					at, of = append(at, (set*g.Rows+r)*channels+c), append(of, c)
				}
			}
			f(set*g.Groups+k, at, of)
		}
	}
}

func referenceGroupNorm(c Call, in, out []Array, _ Args) {
	c.NormGroups().each(func(group int64, at, of []int64) {
		x := make([]float64, len(at))
		for i, k := range at {
			x[i] = in[0].F[k]
		}
		mean, _ := moments(x, c.Attr.Eps)
		variance := 0.0
		for _, v := range x {
			variance += (v - mean) * (v - mean) / float64(len(x))
		}
		out[1].F[group], out[2].F[group] = mean, variance
	})
	again := slices.Clone(in)
	if c.Attr.Running {
		again = again[:len(in)-2]
	}
	referenceGroupNormAgain(c, append(again, out[1], out[2]), out, Args{})
}

func referenceGroupNormAgain(c Call, in, out []Array, _ Args) {
	n := len(in) - 2
	c.NormGroups().each(func(group int64, at, of []int64) {
		inv := 1 / math.Sqrt(in[n+1].F[group]+c.Attr.Eps)
		for i, k := range at {
			u := (in[0].F[k] - in[n].F[group]) * inv
			if c.Attr.Bias {
				u = u*in[1].F[of[i]] + in[2].F[of[i]]
			}
			if c.Attr.Plus {
				u += in[n-1].F[k]
			}
			if c.Attr.Func == ReLU {
				u = max(u, 0)
			}
			out[0].F[k] = u
		}
	})
}

// With u = (x-mean)/std and g = dy·w: dx = (g - mean(g) - u·mean(g·u))/std, dy being 0 where f cuts off.
func referenceGroupNormGrad(c Call, in, out []Array, _ Args) {
	o := c.Attr.NormOperands()
	for _, a := range out {
		clear(a.F)
	}
	c.NormGroups().each(func(group int64, at, of []int64) {
		mean, inv, level, along := in[o.Mean].F[group], 1/math.Sqrt(in[o.Mean+1].F[group]+c.Attr.Eps), 0.0, 0.0
		weight := func(i int) float64 {
			if c.Attr.Bias {
				return in[o.Weight].F[of[i]]
			}
			return 1
		}
		gradient := func(i int, k int64) float64 {
			y := (in[0].F[k] - mean) * inv * weight(i)
			if o.Bias > 0 {
				y += in[o.Bias].F[of[i]]
			}
			if o.Plus > 0 {
				y += in[o.Plus].F[k]
			}
			if c.Attr.Func == ReLU && !(y > 0) {
				return 0
			}
			return in[o.DY].F[k]
		}
		for i, k := range at {
			u, dy := (in[0].F[k]-mean)*inv, gradient(i, k)
			level += dy * weight(i) / float64(len(at))
			along += dy * weight(i) * u / float64(len(at))
			if c.Attr.Bias && !c.Attr.InputOnly {
				out[1].F[of[i]] += dy * u
				out[2].F[of[i]] += dy
			}
			if c.Attr.Plus {
				out[len(out)-1].F[k] = dy
			}
		}
		for i, k := range at {
			out[0].F[k] = inv * (gradient(i, k)*weight(i) - level - (in[0].F[k]-mean)*inv*along)
		}
	})
}

func (l *CaseList) groupNorms() {
	for _, k := range []struct {
		name   string
		x      []int
		groups int64
		whole  bool
	}{{"batch", []int{3, 5, 4, 6}, 0, true}, {"batch of rows", []int{70, 33}, 0, true}, {"instance", []int{2, 9, 5}, 0, false}, {"group", []int{2, 5, 4, 12}, 3, false}, {"one group", []int{2, 7, 8}, 1, false}, {"large", []int{4, 14, 14, 40}, 0, true}, {"large wide", []int{3, 11, 264}, 0, true}, {"large group", []int{3, 23, 64}, 4, false}} {
		large := strings.HasPrefix(k.name, "large")
		for _, affine := range []bool{true, false} {
			a := Attr{Eps: 1e-5, WholeBatch: k.whole, Bias: affine, Spatial: Spatial{Groups: k.groups}}
			name, c := k.name, k.x[len(k.x)-1]
			x := l.Sized(2, k.x...)
			in, params := []Operand{x}, []Operand{l.X(c), l.X(c)}
			if affine {
				name, in = name+" affine", append(in, params...)
			}
			g := normGroups(a, x.Type)
			stats := func(f float64) Operand {
				return FilledF32(fillBy(func(_ int, u float64) float64 { return f + u/10 }), int(g.Sets*g.Groups))
			}
			l.Add(name, GroupNorm, a, in...).Large = large
			l.Add(name, GroupNormAgain, a, append(slices.Clone(in), stats(0.1), stats(1.3))...)
			grad := append(slices.Clone(in[:len(in)-len(in)/3]), stats(0.1), stats(1.3), x)
			l.Add(name, GroupNormGrad, a, grad...)
			if affine {
				if k.whole {
					running := a
					running.Running = true
					l.Add(name+" running", GroupNorm, running, append(slices.Clone(in), l.X(c), l.X(c))...).Large = true // their gradients are no slopes
				}
				a.Accumulate = true
				l.Add(name+" accumulate", GroupNormGrad, a, grad...)
				a.Accumulate, a.InputOnly = false, true
				l.Add(name+" input", GroupNormGrad, a, grad...)
				a.InputOnly = false
			}
			l.cutNorms(name, a, in, x, large, stats(0.1), stats(1.3))
		}
	}
}

// cutNorms are norms with a function behind them, with and without a sum.
func (l *CaseList) cutNorms(name string, a Attr, in []Operand, x Operand, large bool, stats ...Operand) {
	for _, plus := range []bool{false, true} {
		a.Func, a.Plus = ReLU, plus
		if name += " relu"; plus {
			name, in = name+" sum", append(slices.Clone(in), x)
		}
		l.Add(name, GroupNorm, a, in...).Large = large
		known := append(slices.Clone(in), stats...)
		l.Add(name, GroupNormAgain, a, known...)
		l.Add(name, GroupNormGrad, a, append(slices.Clone(known), x)...)
		if b := a; a.Bias {
			b.InputOnly = true
			l.Add(name+" input", GroupNormGrad, b, append(slices.Clone(known), x)...)
			b.InputOnly, b.Accumulate = false, true
			l.Add(name+" accumulate", GroupNormGrad, b, append(slices.Clone(known), x)...)
		}
	}
}
