package op

import (
	"hash/fnv"
	"math"
	"slices"

	"spillway/dtype"
	"spillway/shape"
)

// Case is a call with numbers to try it on. Conformance of devices, gradient
// checks and benchmarks all take their cases from here.
type Case struct {
	Name string // "matmul/129x257x65"
	Call Call
	Args Args
	// Big cases are for kernels that work in tiles; too slow for finite differences.
	Large bool

	fills   []Fill
	derived func(in []Array) // completes operands that follow from others
}

// Fill writes the numbers of one operand; u gives a random number in [0, 1) by
// position.
type Fill func(a Array, u func(i int) float64)

// Operands makes the numbers, the same every time, each one its element type can
// hold.
func (c Case) Operands() []Array {
	in := make([]Array, len(c.Call.In))
	for k, t := range c.Call.In {
		in[k] = NewArray(t)
		c.fills[k](in[k], c.uniform(uint32(k)))
		in[k].Round()
	}
	if c.derived != nil {
		c.derived(in)
		for _, a := range in {
			a.Round()
		}
	}
	return in
}

// Outputs makes what the outputs hold before the call: random numbers to add to
// where the call accumulates, copies of operands it updates in place, and NaN
// elsewhere, so that an element left unwritten shows.
func (c Case) Outputs(operands []Array) []Array {
	out := make([]Array, len(c.Call.Out))
	adds := c.Call.Kind.Accumulates(c.Call.Attr)
	inPlace := c.Call.InPlace()
	for k, t := range c.Call.Out {
		out[k] = NewArray(t)
		switch {
		case k < len(inPlace):
			out[k] = operands[inPlace[k]].Clone()
		case c.Call.Attr.Accumulate && slices.Contains(adds, k):
			Spread(out[k], c.uniform(uint32(100+k)))
			out[k].Round()
		default:
			for i := range out[k].F {
				out[k].F[i] = math.NaN()
			}
		}
	}
	return out
}

func (c Case) uniform(stream uint32) func(i int) float64 {
	h := fnv.New64a()
	h.Write([]byte(c.Name))
	key := h.Sum64()
	return func(i int) float64 { return float64(Uniform(key, stream, uint64(i))) }
}

// Operand is a type with the way to fill it.
type Operand struct {
	Type Type
	Fill Fill
}

// CaseList collects the cases of one element type.
type CaseList struct {
	DType dtype.Type
	all   []Case
}

// Cases lists all cases with activations and weights of type d.
func Cases(d dtype.Type) []Case {
	l := &CaseList{DType: d}
	for _, kind := range Kinds() {
		if o := registry[kind]; o.Cases != nil {
			o.Cases(l)
		}
	}
	return l.all
}

// Add makes a case. One its rule refuses has no outputs, which the tests of this
// package report.
func (l *CaseList) Add(name string, kind Kind, attr Attr, in ...Operand) *Case {
	c := Case{Name: string(kind) + "/" + name, Args: Args{Key: 0x5eed, Row: 3}}
	types := make([]Type, len(in))
	for i, o := range in {
		types[i] = o.Type
		c.fills = append(c.fills, o.Fill)
	}
	made, err := Make(kind, attr, types...)
	if err != nil {
		made = Call{Kind: kind, Attr: attr, In: types}
	}
	c.Call = made
	l.all = append(l.all, c)
	return &l.all[len(l.all)-1]
}

// Both adds a case that replaces and one that accumulates.
func (l *CaseList) Both(name string, kind Kind, attr Attr, in ...Operand) {
	l.Add(name, kind, attr, in...)
	attr.Accumulate = true
	l.Add(name+" accumulate", kind, attr, in...)
}

// X is an operand of the list's type, in [-1, 1).
func (l *CaseList) X(dims ...int) Operand { return Operand{Type{l.DType, shape.Of(dims...)}, Spread} }

// Sized is x with numbers up to a size.
func (l *CaseList) Sized(size float64, dims ...int) Operand {
	return Operand{Type{l.DType, shape.Of(dims...)}, fillBy(func(_ int, u float64) float64 { return size * (2*u - 1) })}
}

// Constant holds one number everywhere.
func (l *CaseList) Constant(f float64, dims ...int) Operand {
	return Operand{Type{l.DType, shape.Of(dims...)}, fillBy(func(int, float64) float64 { return f })}
}

// Spread is numbers in [-1, 1).
var Spread = fillBy(func(_ int, u float64) float64 { return 2*u - 1 })

// fillBy makes each number from its position and a random number.
func fillBy(f func(i int, u float64) float64) Fill {
	return func(a Array, u func(int) float64) {
		for i := range a.F {
			a.F[i] = f(i, u(i))
		}
	}
}

// SpreadAs is x in a type of its own.
func SpreadAs(d dtype.Type, dims ...int) Operand {
	return Operand{Type{d, shape.Of(dims...)}, Spread}
}

// sizedAs is SpreadAs with numbers up to a size.
func sizedAs(size float64, d dtype.Type, dims ...int) Operand {
	return Operand{Type{d, shape.Of(dims...)}, fillBy(func(_ int, u float64) float64 { return size * (2*u - 1) })}
}

// FilledF32 is an operand that is f32 in every list.
func FilledF32(f Fill, dims ...int) Operand {
	return Operand{Type{dtype.F32, shape.Of(dims...)}, f}
}

// Numbers is a vector of given f32.
func Numbers(fs ...float64) Operand {
	return FilledF32(func(a Array, _ func(int) float64) { copy(a.F, fs) }, len(fs))
}

// Below is random integers in [0, n).
func Below(n int, dims ...int) Operand {
	return Integers(func(i int, u float64) int32 { return int32(u * float64(n)) }, dims...)
}

// Integers from position and a random number.
func Integers(f func(i int, u float64) int32, dims ...int) Operand {
	return Operand{Type{dtype.I32, shape.Of(dims...)}, func(a Array, u func(int) float64) {
		for i := range a.I {
			a.I[i] = f(i, u(i))
		}
	}}
}
