package autograd

import (
	"math"
	"slices"
	"testing"

	"spillway/graph"
	"spillway/graph/graphtest"
	"spillway/internal/numtest"
	"spillway/op"
)

// values are the numbers of a program's inputs and results.
type values = map[graph.Value]op.Array

func mustDifferentiate(t *testing.T, p *graph.Program, o Options) *Joint {
	t.Helper()
	j, err := Differentiate(p, o)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func mustRun(t *testing.T, p *graph.Program, in values, args op.Args) values {
	t.Helper()
	out, err := graphtest.Run(p, in, args)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// objective is what the gradients are of: the outputs weighted by GradOut.
func objective(t *testing.T, j *Joint, p *graph.Program, in values, args op.Args) (sum float64) {
	out := mustRun(t, p, in, args)
	for i, v := range j.Outputs {
		if j.GradOut[i] == 0 {
			continue
		}
		for k, w := range in[j.GradOut[i]].F {
			sum += w * out[v].F[k]
		}
	}
	return sum
}

// gradients pairs each differentiated input with its gradient.
func (j *Joint) gradients(p *graph.Program) map[graph.Value]graph.Value {
	pairs := map[graph.Value]graph.Value{}
	for i, port := range graph.Ports(p.Inputs, graph.Carry) {
		pairs[port.Value] = j.GradIn[i]
	}
	for i, port := range graph.Ports(p.Inputs, graph.Param) {
		pairs[port.Value] = j.GradParam[i]
	}
	return pairs
}

// checkGradients compares every gradient with central differences: along two
// random directions over all elements of an input, and along three elements.
func checkGradients(t *testing.T, p *graph.Program, in values, args op.Args) {
	t.Helper()
	j := mustDifferentiate(t, p, Options{InputGrad: true})
	for i, g := range j.GradOut {
		if g != 0 {
			in[g] = numtest.Random(j.Program.Type(g), uint64(1000+i))
		}
	}
	got := mustRun(t, j.Program, in, args)
	for v, g := range j.gradients(p) {
		if g == 0 {
			continue
		}
		for k, along := range directions(p.Type(v)) {
			var slope float64
			for i, d := range along {
				slope += d * got[g].F[i]
			}
			want := difference(t, j, p, in, args, v, along)
			if off := math.Abs(slope - want); !(off <= 1e-7*max(1, math.Abs(want))) {
				t.Errorf("program %s, value %d %v, direction %d: gradient gives %.12g, differences give %.12g", p.Name, v, p.Type(v), k, slope, want)
			}
		}
	}
}

// difference is the slope of the objective along a direction of input v, from
// four points so that the error falls with the fourth power of the step.
func difference(t *testing.T, j *Joint, p *graph.Program, in values, args op.Args, v graph.Value, along []float64) float64 {
	const step = 1e-5
	at := func(by float64) float64 {
		moved := values{}
		for k, a := range in {
			moved[k] = a
		}
		moved[v] = in[v].Clone()
		for i, d := range along {
			moved[v].F[i] += by * d
		}
		return objective(t, j, p, moved, args)
	}
	return (8*(at(step)-at(-step)) - (at(2*step) - at(-2*step))) / (12 * step)
}

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
