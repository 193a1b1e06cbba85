package op

import (
	"fmt"
	"math"

	"spillway/dtype"
)

// Rope: rotates pairs (i, i+R/2) of the first R = 2·len(freq) elements of each of
// Attr.Heads heads by position·freq[i], and multiplies those by Attr.Scale (the
// attention factor of scaled ropes; 0 counts as 1). Inverse turns back and multiplies
// by the same factor: the gradient. The angle is the float32 product of position
// and frequency, as models were trained with.
//
//	operands  x [B T H·D], positions [B T] i32, freq [R/2] f32
const Rope Kind = "rope"

func init() {
	Register(Op{Kind: Rope, Takes: 3, Infer: inferRope, Reference: referenceRope, Cases: (*CaseList).rope})
}

func inferRope(a Attr, in []Type) ([]Type, error) {
	if err := check(float(in, 0), ids(in, 1), rank(in, 0, 2)); err != nil {
		return nil, err
	}
	x := in[0].Shape
	switch {
	case !x[:len(x)-1].Equal(in[1].Shape):
		return nil, fmt.Errorf("positions %v do not fit %v", in[1], in[0])
	case a.Heads < 1 || x.Last()%a.Heads != 0:
		return nil, fmt.Errorf("%d heads do not divide %v", a.Heads, in[0])
	case in[2].DType != dtype.F32 || len(in[2].Shape) != 1 || 2*in[2].Shape[0] > x.Last()/a.Heads:
		return nil, fmt.Errorf("frequencies %v do not fit heads of %d elements", in[2], x.Last()/a.Heads)
	}
	return []Type{in[0]}, nil
}

func referenceRope(c Call, in, out []Array, _ Args) {
	half := len(in[2].F)
	scale := c.Attr.Scale
	if scale == 0 {
		scale = 1
	}
	head := c.In[0].Shape.Last() / c.Attr.Heads
	y := rows(out[0].F, head)
	for n, x := range rows(in[0].F, head) {
		copy(y[n], x)
		position := in[1].I[int64(n)/c.Attr.Heads]
		for i := range half {
			angle := float64(float32(position) * float32(in[2].F[i]))
			if c.Attr.Inverse {
				angle = -angle
			}
			sin, cos := math.Sincos(angle)
			y[n][i] = scale * (x[i]*cos - x[i+half]*sin)
			y[n][i+half] = scale * (x[i+half]*cos + x[i]*sin)
		}
	}
}

func (l *CaseList) rope() {
	positions := func(dims ...int) Operand { return Below(300, dims...) }
	for _, c := range []struct {
		name string
		attr Attr
		x    [3]int
		half int
	}{
		{"whole heads", Attr{Heads: 3}, [3]int{2, 5, 18}, 3},
		{"part of heads", Attr{Heads: 2}, [3]int{2, 4, 22}, 4},
		{"1 position", Attr{Heads: 1}, [3]int{1, 1, 2}, 1},
		{"scaled", Attr{Heads: 2, Scale: 1.25}, [3]int{1, 7, 20}, 4},
		{"64 wide", Attr{Heads: 4}, [3]int{2, 9, 256}, 32},
	} {
		x := l.X(c.x[0], c.x[1], c.x[2])
		l.Add(c.name, Rope, c.attr, x, positions(c.x[0], c.x[1]), frequencies(c.half))
		c.attr.Inverse = true
		l.Add(c.name+" inverse", Rope, c.attr, x, positions(c.x[0], c.x[1]), frequencies(c.half))
	}
	alike := Integers(func(i int, _ float64) int32 { return int32(i % 6 * 40) }, 3, 6)
	l.Add("samples alike", Rope, Attr{Heads: 2}, l.X(3, 6, 20), alike, frequencies(5))
}

// frequencies of rotary positions, base 10000.
func frequencies(half int) Operand {
	return FilledF32(fillBy(func(i int, _ float64) float64 { return math.Pow(10000, -float64(i)/float64(half)) }), half)
}
