package op

import (
	"fmt"
	"math"
	"slices"
)

// Resampling is how Resample reads between places.
type Resampling uint8

// The ways to resample, as PyTorch's interpolate has them.
const (
	NoResampling Resampling = iota
	Nearest
	NearestExact
	Linear
	Cubic
	resamplings
)

var resamplingNames = [resamplings]string{"", "nearest", "nearest-exact", "linear", "cubic"}

// String is the name in plans.
func (r Resampling) String() string {
	if r >= resamplings {
		return fmt.Sprintf("resampling(%d)", uint8(r))
	}
	return resamplingNames[r]
}

// MarshalText writes the name.
func (r Resampling) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads the name.
func (r *Resampling) UnmarshalText(b []byte) error {
	i := slices.Index(resamplingNames[:], string(b))
	if i < 0 {
		return fmt.Errorf("unknown resampling %q", b)
	}
	*r = Resampling(i)
	return nil
}

// Resample: x with Attr.Length places along Attr.Axis, each a sum of a few of x. In two and three
// dimensions it is applied to each. Attr.Scale is the scale factor where one was given: places are then
// found by it instead of by the sizes.
const Resample Kind = "resample"

// ResampleGrad: operand dy; output dx with Attr.Rows places along Attr.Axis, where dy has Attr.Length.
const ResampleGrad Kind = "resample_grad"

func init() {
	Register(Op{Kind: Resample, Takes: 1, Infer: inferResample, Reference: referenceResample, Cases: (*CaseList).resamplings})
	Register(Op{Kind: ResampleGrad, Takes: 1, Infer: inferResampleGrad, Reference: referenceResample})
}

func inferResample(a Attr, in []Type) ([]Type, error) {
	if a.Resampling == NoResampling || a.Resampling >= resamplings {
		return nil, fmt.Errorf("has no way %v", a.Resampling)
	}
	if !in[0].Shape.Has(a.Axis, 1) || a.Length < 1 || in[0].Shape.Elements() == 0 || a.Length > 1<<30 {
		return nil, fmt.Errorf("%v has no dimension %d, counted from the last, that becomes %d", in[0], a.Axis, a.Length)
	}
	out := in[0].Shape.With(a.Axis, a.Length)
	return []Type{{in[0].DType, out}}, check(out.Check(), float(in, 0))
}

func inferResampleGrad(a Attr, in []Type) ([]Type, error) {
	if !in[0].Shape.Has(a.Axis, 1) || a.Rows < 1 || a.Rows > 1<<30 {
		return nil, fmt.Errorf("%v has no dimension %d, counted from the last, that comes from %d", in[0], a.Axis, a.Rows)
	}
	x := Type{in[0].DType, in[0].Shape.With(a.Axis, a.Rows)}
	y, err := inferResample(a, []Type{x})
	if err == nil && !y[0].Equal(in[0]) {
		err = fmt.Errorf("%v resampled is %v, got %v", x, y[0], in[0])
	}
	return []Type{x}, err
}

// Tap is a place that is read, and how much of it counts.
type Tap struct {
	From   int64
	Weight float64
}

// Spacing is how many of the n old places lie between two new ones.
func (a Attr) Spacing(n int64) float64 {
	switch {
	case a.AlignCorners && a.Length > 1:
		return float64(n-1) / float64(a.Length-1)
	case a.AlignCorners:
		return 0
	case a.Scale != 0:
		return 1 / a.Scale
	}
	return float64(n) / float64(a.Length)
}

// Taps are what each of the new places reads of the n old ones.
func (a Attr) Taps(n int64) [][]Tap {
	scale := a.Spacing(n)
	taps := make([][]Tap, a.Length)
	inside := func(i int64) int64 { return min(max(i, 0), n-1) }
	for o := range a.Length {
		at := (float64(o)+0.5)*scale - 0.5
		if a.AlignCorners {
			at = float64(o) * scale
		}
		switch a.Resampling {
		case Nearest:
			taps[o] = []Tap{{inside(int64(math.Floor(float64(o) * scale))), 1}}
		case NearestExact:
			taps[o] = []Tap{{inside(int64(math.Floor((float64(o) + 0.5) * scale))), 1}}
		case Linear:
			at = max(at, 0)
			low := inside(int64(at))
			part := min(at-float64(low), 1)
			taps[o] = []Tap{{low, 1 - part}, {inside(low + 1), part}}
		case Cubic:
			low := int64(math.Floor(at))
			part := at - float64(low)
			for i := range int64(4) {
				taps[o] = append(taps[o], Tap{inside(low - 1 + i), cubic(part - float64(i-1))})
			}
		}
	}
	return taps
}

// cubic is the weight of a place at a distance, with PyTorch's constant of -0.75.
func cubic(d float64) float64 {
	const a = -0.75
	switch d = math.Abs(d); {
	case d <= 1:
		return ((a+2)*d-(a+3))*d*d + 1
	case d < 2:
		return ((a*d-5*a)*d+8*a)*d - 4*a
	}
	return 0
}

// referenceResample adds what each place reads, or of the gradient gives it back.
func referenceResample(c Call, in, out []Array, _ Args) {
	clear(out[0].F)
	x, back := c.In[0].Shape, c.Kind == ResampleGrad
	if back {
		x = c.Out[0].Shape
	}
	outer, n, inner := x.Around(c.Attr.Axis, 1)
	for o, taps := range c.Attr.Taps(n) {
		for _, t := range taps {
			for b := range outer {
				for i := range inner {
					old, made := (b*n+t.From)*inner+i, (b*c.Attr.Length+int64(o))*inner+i
					if back {
						out[0].F[old] += t.Weight * in[0].F[made]
					} else {
						out[0].F[made] += t.Weight * in[0].F[old]
					}
				}
			}
		}
	}
}

func (l *CaseList) resamplings() {
	for r := Nearest; r < resamplings; r++ {
		for _, n := range []int64{3, 9, 10} {
			for _, corners := range []bool{false, true} {
				if corners && r < Linear {
					continue
				}
				a := Attr{Resampling: r, Axis: 1, Length: n, AlignCorners: corners}
				name := fmt.Sprint(r, " ", n, " ", corners)
				y := l.Add(name, Resample, a, l.X(2, 5, 7)).Call.Out
				a.Rows = 5
				l.Add(name, ResampleGrad, a, Operand{y[0], Spread})
			}
		}
	}
	l.Add("last", Resample, Attr{Resampling: Linear, Length: 6}, l.X(3, 4))
	l.Add("scale", Resample, Attr{Resampling: Linear, Length: 7, Scale: 1.5}, l.X(3, 5))
}
