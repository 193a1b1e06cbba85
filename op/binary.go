package op

import (
	"fmt"
	"math"
	"slices"

	"spillway/shape"
)

// Func2 is a function of two numbers.
type Func2 uint8

// The functions of Binary, and behind If those of Compare.
const (
	NoFunc2 Func2 = iota
	Plus
	Minus
	Times
	Divide
	Pow
	Maximum // at equal numbers each has half of the gradient
	Minimum
	PReLU  // x > 0 ? x : y·x
	If     // x ≠ 0 ? y : 0
	Unless // x = 0 ? y : 0
	Equal
	NotEqual
	Less
	LessEqual
	Greater
	GreaterEqual
	funcs2
)

var func2Names = [funcs2]string{"", "plus", "minus", "times", "divide", "pow", "maximum", "minimum", "prelu", "if", "unless", "eq", "ne", "lt", "le", "gt", "ge"}

// String is the name in plans.
func (f Func2) String() string {
	if f >= funcs2 {
		return fmt.Sprintf("func2(%d)", uint8(f))
	}
	return func2Names[f]
}

// MarshalText writes the name.
func (f Func2) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalText reads the name.
func (f *Func2) UnmarshalText(b []byte) error {
	i := slices.Index(func2Names[:], string(b))
	if i < 0 {
		return fmt.Errorf("unknown function %q of two numbers", b)
	}
	*f = Func2(i)
	return nil
}

// Compares says that the function is one of Compare.
func (f Func2) Compares() bool { return f >= Equal && f < funcs2 }

func init() {
	Register(Op{Kind: Binary, Takes: 2, Infer: inferBinary, Cost: costBinary, Reference: referenceBinary, Cases: (*CaseList).binary})
	Register(Op{Kind: BinaryGrad, Takes: 3, Infer: inferBinaryGrad, Cost: costBinary, Reference: referenceBinaryGrad})
	Register(Op{Kind: Compare, Takes: 2, Infer: inferCompare, Reference: referenceBinary})
}

// Binary: z = f(x, y), f being Attr.Func2; shapes are broadcast as NumPy does.
const Binary Kind = "binary"

// Compare: 1 where x and y compare as Attr.Func2 says, else 0, as numbers of their type. It counts as
// a constant in gradients.
const Compare Kind = "compare"

// BinaryGrad: dz times the slope of f by x, or by y with Attr.Second, in the shape of z; what was
// repeated is still to be summed. Operands x, y, dz.
const BinaryGrad Kind = "binary_grad"

// maxRank is how many dimensions ops on tensors of any shape take.
const maxRank = 8

func inferBinary(a Attr, in []Type) ([]Type, error) {
	if a.Func2 == NoFunc2 || a.Func2 >= Equal {
		return nil, fmt.Errorf("has no function %v", a.Func2)
	}
	return broadcast(in)
}

func inferCompare(a Attr, in []Type) ([]Type, error) {
	if !a.Func2.Compares() {
		return nil, fmt.Errorf("%v does not compare", a.Func2)
	}
	return broadcast(in)
}

// broadcast is the type of two operands together.
func broadcast(in []Type) ([]Type, error) {
	s, err := shape.Broadcast(in[0].Shape, in[1].Shape)
	switch {
	case err != nil:
		return nil, err
	case in[0].DType != in[1].DType:
		return nil, fmt.Errorf("%v and %v: element types differ; cast one of them", in[0], in[1])
	case len(s) > maxRank:
		return nil, fmt.Errorf("%v has %d dimensions, %d is the most", s, len(s), maxRank)
	}
	return []Type{{in[0].DType, s}}, float(in, 0, 1)
}

func inferBinaryGrad(a Attr, in []Type) ([]Type, error) {
	out, err := inferBinary(a, in[:2])
	if err == nil && !out[0].Equal(in[2]) {
		err = fmt.Errorf("operand 2 is %v, want %v", in[2], out[0])
	}
	return out, err
}

// costBinary counts eight operations per element: a division or a part of a power.
func costBinary(c Call) Cost { return Cost{Flops: 8 * float64(c.Out[0].Shape.Elements())} }

// Value is f(x, y); true is 1.
func (f Func2) Value(x, y float64) float64 {
	truth := func(is bool) float64 { return choose(is, 1, 0) }
	switch f {
	case Plus:
		return x + y
	case Minus:
		return x - y
	case Times:
		return x * y
	case Divide:
		return x / y
	case Pow:
		return math.Pow(x, y)
	case Maximum:
		return max(x, y)
	case Minimum:
		return min(x, y)
	case PReLU:
		return choose(x > 0, x, y*x)
	case If:
		return choose(x != 0, y, 0)
	case Unless:
		return choose(x == 0, y, 0)
	case Equal:
		return truth(x == y)
	case NotEqual:
		return truth(x != y)
	case Less:
		return truth(x < y)
	case LessEqual:
		return truth(x <= y)
	case Greater:
		return truth(x > y)
	case GreaterEqual:
		return truth(x >= y)
	}
	return math.NaN()
}

// Slope is the derivative of f by x, or by y.
func (f Func2) Slope(x, y float64, second bool) float64 {
	by := func(first, other float64) float64 { return choose(second, other, first) }
	switch f {
	case Plus:
		return 1
	case Minus:
		return by(1, -1)
	case Times:
		return by(y, x)
	case Divide:
		return by(1/y, -x/(y*y))
	case Pow:
		if second {
			return choose(x == 0 && y >= 0, 0, math.Pow(x, y)*math.Log(x))
		}
		return choose(y == 0, 0, y*math.Pow(x, y-1))
	case Maximum:
		return choose(x == y, 0.5, choose((x > y) != second, 1, 0))
	case Minimum:
		return choose(x == y, 0.5, choose((x < y) != second, 1, 0))
	case PReLU:
		return by(choose(x > 0, 1, y), choose(x > 0, 0, x))
	case If:
		return by(0, choose(x != 0, 1, 0))
	case Unless:
		return by(0, choose(x == 0, 1, 0))
	}
	return math.NaN()
}

// BroadcastWalk goes over the operands and the output of an op that broadcasts.
func (c Call) BroadcastWalk() shape.Walk {
	shapes := make([]shape.Shape, 0, len(c.In)+1)
	for _, t := range c.In {
		shapes = append(shapes, t.Shape)
	}
	return shape.BroadcastWalk(c.Out[0].Shape, append(shapes, c.Out[0].Shape)...)
}

func referenceBinary(c Call, in, out []Array, _ Args) {
	c.BroadcastWalk().Each(func(at []int64) { out[0].F[at[2]] = c.Attr.Func2.Value(in[0].F[at[0]], in[1].F[at[1]]) })
}

func referenceBinaryGrad(c Call, in, out []Array, _ Args) {
	c.BroadcastWalk().Each(func(at []int64) {
		dz := in[2].F[at[2]]
		slope := c.Attr.Func2.Slope(in[0].F[at[0]], in[1].F[at[1]], c.Attr.Second)
		out[0].F[at[3]] = choose(slope == 0, 0, dz*slope)
	})
}

func (l *CaseList) binary() {
	positive := func(dims ...int) Operand {
		return Operand{Type{l.DType, shape.Of(dims...)}, fillBy(func(_ int, u float64) float64 { return 0.3 + 1.5*u })}
	}
	for f := Plus; f < funcs2; f++ {
		kind, x, y := Binary, l.X, l.X
		switch {
		case f.Compares():
			kind = Compare
		case f == Divide:
			y = positive
		case f == Pow:
			x = positive
		}
		for _, dims := range [][2][]int{{{3, 37}, {3, 37}}, {{2, 3, 19}, {19}}, {{2, 1, 5}, {7, 1}}, {{1}, {4, 3}}, {{2, 3, 1, 5}, {2, 1, 4, 1}}, {{67, 129}, {67, 1}}} {
			name := fmt.Sprintf("%v %v %v", f, dims[0], dims[1])
			a := Attr{Func2: f}
			c := *l.Add(name, kind, a, x(dims[0]...), y(dims[1]...))
			if kind == Compare || len(c.Call.Out) == 0 {
				continue
			}
			dz := Operand{c.Call.Out[0], Spread}
			l.Add(name, BinaryGrad, a, x(dims[0]...), y(dims[1]...), dz)
			a.Second = true
			l.Add(name+" second", BinaryGrad, a, x(dims[0]...), y(dims[1]...), dz)
		}
	}
	l.Add("some equal", Compare, Attr{Func2: Equal}, Operand{Type{l.DType, shape.Of(40)}, fillBy(func(i int, u float64) float64 { return float64(i % 3) })}, l.Constant(1, 1))
	l.Add("some equal", BinaryGrad, Attr{Func2: Maximum}, Operand{Type{l.DType, shape.Of(40)}, fillBy(func(i int, u float64) float64 { return float64(i % 3) })}, l.Constant(1, 1), l.X(40))
}
