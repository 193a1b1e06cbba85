package op

import (
	"fmt"
	"slices"
)

// reference computes outputs from operands, replacing what is there.
type reference func(c Call, in, out []Array, args Args)

// Reference computes the call with plain loops in float64: the slow right thing
// every kernel is compared with. Nothing is rounded to the operands' types.
// Outputs hold what Attr.Accumulate adds to; they may be the operands themselves
// where the op updates in place.
func (c Call) Reference(in, out []Array, args Args) error {
	o, err := c.Kind.def()
	if err != nil {
		return err
	}
	if err := check(checkArrays("operand", c.In, in), checkArrays("output", c.Out, out)); err != nil {
		return fmt.Errorf("reference of %s: %w", c.Kind, err)
	}
	before := make([][]float64, len(out))
	if c.Attr.Accumulate {
		for _, i := range c.Kind.Accumulates(c.Attr) {
			before[i] = slices.Clone(out[i].F)
		}
	}
	o.Reference(c, in, out, args)
	for i, old := range before {
		for k, f := range old {
			out[i].F[k] += f
		}
	}
	return nil
}

func checkArrays(what string, types []Type, arrays []Array) error {
	if len(types) != len(arrays) {
		return fmt.Errorf("%d arrays for %d %ss", len(arrays), len(types), what)
	}
	for i, t := range types {
		a := arrays[i]
		if n := t.Shape.Elements(); !a.Type.Equal(t) || int64(len(a.F)+len(a.I)) != n {
			return fmt.Errorf("%s %d is %v with %d numbers, want %v", what, i, a.Type, len(a.F)+len(a.I), t)
		}
	}
	return nil
}

// each makes a reference of a function of the numbers at one position.
func each(f func(c Call, x []float64) float64) reference {
	return func(c Call, in, out []Array, _ Args) {
		x := make([]float64, len(in))
		for i := range out[0].F {
			for k, a := range in {
				x[k] = a.F[i%len(a.F)] // a smaller operand is repeated
			}
			out[0].F[i] = f(c, x)
		}
	}
}

// rows cuts numbers into rows of width n.
func rows(f []float64, n int64) [][]float64 {
	if n == 0 {
		return nil
	}
	return slices.Collect(slices.Chunk(f, int(n)))
}

// dot is the inner product.
func dot(a, b []float64) (sum float64) {
	for i := range a {
		sum += a[i] * b[i]
	}
	return sum
}

// axpy: y += a·x.
func axpy(a float64, x, y []float64) {
	for i := range x {
		y[i] += a * x[i]
	}
}
