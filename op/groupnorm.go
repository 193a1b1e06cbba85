package op

import (
	"fmt"
	"math"
	"slices"

	"spillway/dtype"
)

// GroupNorm: y = (x - mean)/sqrt(var + eps)·w + b. Statistics are of each sample and each of
// Attr.Spatial.Groups groups of neighbouring channels (0: each channel), or over all samples with
// Attr.WholeBatch: group, instance and batch norm.
//
//	operands  x [B S.. C], then w [C] and b [C] with Attr.Bias, then the running mean and variance
//	          [C] with Attr.Running, which are not read: their gradients are how far they are from
//	          the statistics
//	outputs   y, and as f32 mean and (biased) var of all groups
const GroupNorm Kind = "group_norm"

// GroupNormGrad: operands x, w with Attr.Bias, mean, var, dy; outputs dx, and dw and db with Attr.Bias
// unless Attr.InputOnly.
const GroupNormGrad Kind = "group_norm_grad"

func init() {
	Register(Op{Kind: GroupNorm, Infer: inferGroupNorm, Cost: costNorm, Reference: referenceGroupNorm, Cases: (*CaseList).groupNorms})
	Register(Op{Kind: GroupNormGrad, Infer: inferGroupNormGrad, Cost: costNorm, Reference: referenceGroupNormGrad, Accumulates: groupNormParams})
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
	if err := arity(in, 1, a.Bias, a.Bias, a.Running, a.Running); err != nil {
		return nil, err
	}
	stats, err := checkGroups(a, in)
	if err != nil {
		return nil, err
	}
	if a.Running && (!a.WholeBatch || a.Spatial.Groups != 0) {
		return nil, fmt.Errorf("running statistics are of channels over whole batches")
	}
	for i := 1; i < len(in) && err == nil; i++ {
		err = check(float(in, i), vector(in, i, in[0].Shape.Last()))
	}
	return []Type{in[0], stats, stats}, err
}

func inferGroupNormGrad(a Attr, in []Type) ([]Type, error) {
	if err := arity(in, 4, a.Bias); err != nil {
		return nil, err
	}
	stats, err := checkGroups(a, in)
	if err != nil {
		return nil, err
	}
	rest, out := in[1:], []Type{in[0]}
	if a.Bias {
		if err := check(float(in, 1), vector(in, 1, in[0].Shape.Last())); err != nil {
			return nil, err
		}
		rest = in[2:]
		if !a.InputOnly {
			out = append(out, in[1], in[1])
		}
	}
	if !rest[0].Equal(stats) || !rest[1].Equal(stats) || !rest[2].Equal(in[0]) {
		return nil, fmt.Errorf("statistics %v, %v and gradient %v of %v: want %v", rest[0], rest[1], rest[2], in[0], stats)
	}
	return out, nil
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
		mean, inv := moments(x, c.Attr.Eps)
		variance := 0.0
		for _, v := range x {
			variance += (v - mean) * (v - mean) / float64(len(x))
		}
		out[1].F[group], out[2].F[group] = mean, variance
		for i, k := range at {
			u := (x[i] - mean) * inv
			if c.Attr.Bias {
				u = u*in[1].F[of[i]] + in[2].F[of[i]]
			}
			out[0].F[k] = u
		}
	})
}

// With u = (x-mean)/std and g = dy·w: dx = (g - mean(g) - u·mean(g·u))/std.
func referenceGroupNormGrad(c Call, in, out []Array, _ Args) {
	rest := in[1:]
	if c.Attr.Bias {
		rest = in[2:]
	}
	for _, o := range out {
		clear(o.F)
	}
	c.NormGroups().each(func(group int64, at, of []int64) {
		mean, inv, level, along := rest[0].F[group], 1/math.Sqrt(rest[1].F[group]+c.Attr.Eps), 0.0, 0.0
		weighted := func(i int, k int64) float64 {
			if c.Attr.Bias {
				return rest[2].F[k] * in[1].F[of[i]]
			}
			return rest[2].F[k]
		}
		for i, k := range at {
			u, dy := (in[0].F[k]-mean)*inv, rest[2].F[k]
			level += weighted(i, k) / float64(len(at))
			along += weighted(i, k) * u / float64(len(at))
			if len(out) > 1 {
				out[1].F[of[i]] += dy * u
				out[2].F[of[i]] += dy
			}
		}
		for i, k := range at {
			out[0].F[k] = inv * (weighted(i, k) - level - (in[0].F[k]-mean)*inv*along)
		}
	})
}

func (l *CaseList) groupNorms() {
	for _, k := range []struct {
		name   string
		x      []int
		groups int64
		whole  bool
	}{{"batch", []int{3, 5, 4, 6}, 0, true}, {"batch of rows", []int{70, 33}, 0, true}, {"instance", []int{2, 9, 5}, 0, false}, {"group", []int{2, 5, 4, 12}, 3, false}, {"one group", []int{2, 7, 8}, 1, false}, {"large", []int{4, 14, 14, 40}, 0, true}} {
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
			l.Add(name, GroupNorm, a, in...).Large = k.name == "large"
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
			}
		}
	}
}
