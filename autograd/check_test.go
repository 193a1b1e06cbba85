package autograd_test

import (
	"testing"

	"spillway/autograd"
	"spillway/graph"
	"spillway/graph/graphtest"
	"spillway/op"
)

// values are the numbers of a program's inputs and results.
type values = map[graph.Value]op.Array

func mustDifferentiate(t *testing.T, p *graph.Program, o autograd.Options) *autograd.Joint {
	t.Helper()
	j, err := autograd.Differentiate(p, o)
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

// gradients pairs each differentiated input with its gradient.
func gradients(j *autograd.Joint, p *graph.Program) map[graph.Value]graph.Value {
	pairs := map[graph.Value]graph.Value{}
	for i, port := range graph.Ports(p.Inputs, graph.Carry) {
		pairs[port.Value] = j.GradIn[i]
	}
	for i, port := range graph.Ports(p.Inputs, graph.Param) {
		pairs[port.Value] = j.GradParam[i]
	}
	return pairs
}
