// Package gradcheck tells wrong gradients: it compares those that rules give with differences of the op's
// own reference, along random directions and single elements. Tests of ops of one's own use it.
package gradcheck

import (
	"fmt"
	"math"
	"slices"

	"spillway/autograd"
	"spillway/graph"
	"spillway/graph/graphtest"
	"spillway/internal/numtest"
	"spillway/op"
)

// Values are the numbers of a program's inputs.
type Values = map[graph.Value]op.Array

// Tolerance is how far a gradient may be from the difference, as a share of it where it is above 1.
const Tolerance = 1e-7

// Case checks the gradient of one op on the operands of a test case: of all its real operands, or of the
// first so many where differentiable is not 0. Only the first output counts where one is asked for.
func Case(c op.Case, differentiable int, firstOutput bool) error {
	b := graph.NewBuilder(c.Name, graph.Config{})
	in, values := make([]graph.Value, len(c.Call.In)), Values{}
	for i, a := range c.Operands() {
		name := fmt.Sprint(i)
		if a.I != nil || differentiable > 0 && i >= differentiable {
			in[i] = b.Part(name, a.Type.DType, a.Type.Shape...)
		} else {
			in[i] = b.Param(name, a.Type, false)
		}
		values[in[i]] = a
	}
	out := b.Apply(c.Call.Kind, c.Call.Attr, in...)
	if firstOutput {
		out = out[:1]
	}
	p, err := b.Program(graph.Carry, out...)
	if err != nil {
		return err
	}
	return Program(p, values, c.Args)
}

// Program checks the gradients of all carries and trainable params of a program. The error names the first
// that is wrong, with both numbers.
func Program(p *graph.Program, in Values, args op.Args) error {
	j, err := autograd.Differentiate(p, autograd.Options{InputGrad: true})
	if err != nil {
		return err
	}
	for i, g := range j.GradOut {
		if g != 0 {
			in[g] = numtest.Random(j.Program.Type(g), uint64(1000+i))
		}
	}
	got, err := graphtest.Run(j.Program, in, args)
	if err != nil {
		return err
	}
	check := func(ports []graph.Port, gradients []graph.Value) error {
		for i, port := range ports {
			if gradients[i] == 0 {
				continue
			}
			for _, along := range directions(p.Type(port.Value)) {
				var slope float64
				for k, d := range along {
					slope += d * got[gradients[i]].F[k]
				}
				want, err := difference(j, p, in, args, port.Value, along)
				if err != nil {
					return err
				}
				if off := math.Abs(slope - want); !(off <= Tolerance*max(1, math.Abs(want))) {
					return fmt.Errorf("program %s: the gradient of %s %s %v gives a slope of %.9g, differences give %.9g; mend its rule", p.Name, port.Role, port.Name, p.Type(port.Value), slope, want)
				}
			}
		}
		return nil
	}
	if err := check(graph.Ports(p.Inputs, graph.Carry), j.GradIn); err != nil {
		return err
	}
	return check(graph.Ports(p.Inputs, graph.Param), j.GradParam)
}

// difference is the slope of the outputs, weighted by their gradients, along a direction of an input: from
// four points, so that the error falls with the fourth power of the step.
func difference(j *autograd.Joint, p *graph.Program, in Values, args op.Args, v graph.Value, along []float64) (float64, error) {
	const step = 1e-5
	var failed error
	at := func(by float64) (sum float64) {
		moved := Values{}
		for k, a := range in {
			moved[k] = a
		}
		moved[v] = in[v].Clone()
		for i, d := range along {
			moved[v].F[i] += by * d
		}
		out, err := graphtest.Run(p, moved, args)
		if err != nil {
			failed = err
			return 0
		}
		for i, o := range j.Outputs {
			if j.GradOut[i] == 0 {
				continue
			}
			for k, w := range in[j.GradOut[i]].F {
				sum += w * out[o].F[k]
			}
		}
		return sum
	}
	return (8*(at(step)-at(-step)) - (at(2*step) - at(-2*step))) / (12 * step), failed
}

// directions are two random ones over all elements, and the first, the middle and the last element.
func directions(t op.Type) [][]float64 {
	n := int(t.Shape.Elements())
	all := [][]float64{numtest.Random(t, 71).F, numtest.Random(t, 72).F}
	for _, i := range slices.Compact([]int{0, n / 2, n - 1}) {
		one := make([]float64, n)
		one[i] = 1
		all = append(all, one)
	}
	return all
}
