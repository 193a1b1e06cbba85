package op

import (
	"bytes"
	"math"
	"testing"

	"spillway/dtype"
)

// Cases are well-formed calls that reach every kind, distinguished by name, whose
// references write every element.
func TestCases(t *testing.T) {
	for _, d := range []dtype.Type{dtype.F32, dtype.BF16} {
		tried, names := map[Kind]int{}, map[string]bool{}
		for _, c := range Cases(d) {
			if err := c.Call.Check(); err != nil {
				t.Errorf("%s: %v", c.Name, err)
				continue
			}
			if names[c.Name] {
				t.Errorf("two cases are named %s", c.Name)
			}
			names[c.Name] = true
			tried[c.Call.Kind]++
			in := c.Operands()
			out := c.Outputs(in)
			if err := c.Call.Reference(in, out, c.Args); err != nil {
				t.Errorf("%s: %v", c.Name, err)
			}
			for i, a := range out {
				for k, f := range a.F {
					if math.IsNaN(f) {
						t.Fatalf("%s: output %d, element %d is not a number", c.Name, i, k)
					}
				}
			}
		}
		for _, k := range Kinds() {
			if tried[k] == 0 {
				t.Errorf("no %v case for %s", d, k)
			}
		}
	}
}

func TestOperandsAreTheSameEveryTime(t *testing.T) {
	first, second := Cases(dtype.BF16), Cases(dtype.BF16)
	for i, c := range first {
		a, b := c.Operands(), second[i].Operands()
		for k := range a {
			x, errX := a[k].Encode()
			y, errY := b[k].Encode()
			if errX != nil || errY != nil || !bytes.Equal(x, y) {
				t.Fatalf("%s: operand %d differs (%v %v)", c.Name, k, errX, errY)
			}
			back, err := Decode(a[k].Type, x)
			if err != nil {
				t.Fatal(err)
			}
			for j, f := range a[k].F {
				if back.F[j] != f {
					t.Fatalf("%s: operand %d holds %v, which its type cannot", c.Name, k, f)
				}
			}
		}
	}
}

// Accumulating gives what was there plus what the call gives alone.
func TestAccumulateAdds(t *testing.T) {
	tried := 0
	for _, c := range Cases(dtype.F32) {
		if !c.Call.Attr.Accumulate {
			continue
		}
		tried++
		in := c.Operands()
		before, sum, alone := c.Outputs(in), c.Outputs(in), c.Outputs(in)
		plain := c.Call
		plain.Attr.Accumulate = false
		if err := c.Call.Reference(in, sum, c.Args); err != nil {
			t.Fatal(err)
		}
		if err := plain.Reference(in, alone, c.Args); err != nil {
			t.Fatal(err)
		}
		for _, o := range c.Call.Kind.Accumulates(c.Call.Attr) {
			for k := range sum[o].F {
				if sum[o].F[k] != alone[o].F[k]+before[o].F[k] {
					t.Fatalf("%s: output %d, element %d is %v, want %v + %v", c.Name, o, k, sum[o].F[k], alone[o].F[k], before[o].F[k])
				}
			}
		}
	}
	if tried < 20 {
		t.Errorf("only %d cases accumulate", tried)
	}
}

func TestReferenceRefusesWrongArrays(t *testing.T) {
	call, err := Make(Copy, Attr{}, f(3))
	if err != nil {
		t.Fatal(err)
	}
	x := NewArray(f(3))
	for name, err := range map[string]error{
		"no operand": call.Reference(nil, []Array{x}, Args{}),
		"other type": call.Reference([]Array{NewArray(f(4))}, []Array{x}, Args{}),
		"no numbers": call.Reference([]Array{{Type: f(3)}}, []Array{x}, Args{}),
		"no kind":    Call{}.Reference(nil, nil, Args{}),
	} {
		if err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

// The first output of splitmix64 from state 0 is published with the algorithm.
func TestUniform(t *testing.T) {
	if got := mix(0); got != 0xe220a8397b1dcdaf {
		t.Errorf("mix(0) = %#x", got)
	}
	const n = 1 << 16
	var sum, square, along float64
	for k := range uint64(n) {
		u := float64(Uniform(7, 1, k))
		if u < 0 || u >= 1 || u*(1<<24) != math.Trunc(u*(1<<24)) {
			t.Fatalf("number %d is %v, want 24 bits in [0, 1)", k, u)
		}
		sum, square = sum+u, square+u*u
		along += u * float64(Uniform(7, 2, k))
	}
	mean, variance := sum/n, square/n-sum/n*sum/n
	// Five standard deviations: 1/sqrt(12n) for the mean, about 1/(12 sqrt(n)) else.
	if math.Abs(mean-0.5) > 5/math.Sqrt(12*n) || math.Abs(variance-1.0/12) > 5/(12*math.Sqrt(n)) || math.Abs(along/n-0.25) > 5*0.31/math.Sqrt(n) {
		t.Errorf("mean %v, variance %v, product with another stream %v", mean, variance, along/n)
	}
}

// A sample meets the same dropout however the batch is cut.
func TestDropoutFollowsTheSample(t *testing.T) {
	call := func(rows int) Call {
		c, err := Make(Dropout, Attr{Prob: 0.4, Stream: 2}, f(rows, 50))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	ones := func(rows int) Array {
		a := NewArray(f(rows, 50))
		for k := range a.F {
			a.F[k] = 1
		}
		return a
	}
	whole, part := NewArray(f(4, 50)), NewArray(f(1, 50))
	if err := call(4).Reference([]Array{ones(4)}, []Array{whole}, Args{Key: 9, Row: 10}); err != nil {
		t.Fatal(err)
	}
	kept := 0
	for row := range 4 {
		if err := call(1).Reference([]Array{ones(1)}, []Array{part}, Args{Key: 9, Row: uint64(10 + row)}); err != nil {
			t.Fatal(err)
		}
		for k, v := range part.F {
			if v != whole.F[50*row+k] {
				t.Fatalf("row %d, element %d: %v alone, %v in the batch", row, k, v, whole.F[50*row+k])
			}
			if v != 0 {
				kept++
			}
		}
	}
	if kept < 90 || kept > 150 { // 120 expected, standard deviation 7
		t.Errorf("%d of 200 kept at p = 0.4", kept)
	}
}
