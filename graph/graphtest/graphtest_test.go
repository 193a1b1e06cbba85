package graphtest

import (
	"testing"

	"spillway/dtype"
	"spillway/graph"
	"spillway/op"
	"spillway/shape"
)

// (2·x + c)·x with a constant, by hand.
func TestRun(t *testing.T) {
	b := graph.NewBuilder("polynomial", graph.Config{})
	x := b.Input(op.Type{DType: dtype.F32, Shape: shape.Of(2)})
	y := b.Mul(b.Add(b.Scale(x, 2), b.Floats("c", []float32{5, 7})), x)
	p, err := b.Program(graph.Result, y)
	if err != nil {
		t.Fatal(err)
	}
	all, err := Run(p, map[graph.Value]op.Array{x: {Type: p.Type(x), F: []float64{3, -1}}}, op.Args{})
	if err != nil {
		t.Fatal(err)
	}
	if got := all[y].F; got[0] != 33 || got[1] != -5 {
		t.Errorf("got %v, want [33 -5]", got)
	}
	if _, err := Run(p, nil, op.Args{}); err == nil {
		t.Error("ran without its input")
	}
}
