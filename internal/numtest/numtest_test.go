package numtest

import (
	"math"
	"testing"

	"spillway/dtype"
	"spillway/graph"
	"spillway/op"
	"spillway/shape"
)

func TestCompare(t *testing.T) {
	inf := math.Inf(1)
	for _, c := range []struct {
		name      string
		got, want []float64
		max, nmse float64
	}{
		{"equal", []float64{1, -inf, 0}, []float64{1, -inf, 0}, 0, 0},
		{"by the largest", []float64{10, 1}, []float64{10, 2}, 0.1, 1.0 / 104},
		{"NaN", []float64{math.NaN(), 1}, []float64{1, 1}, inf, inf},
		{"NaN wanted", []float64{math.NaN()}, []float64{math.NaN()}, inf, inf},
		{"wrong infinity", []float64{inf}, []float64{-inf}, inf, inf},
		{"zeros", []float64{0.5}, []float64{0}, 0.5, 0.25},
		{"length", []float64{1}, []float64{1, 2}, inf, inf},
	} {
		if d := Compare(c.got, c.want); d.Max != c.max || d.NMSE != c.nmse {
			t.Errorf("%s: %v, want max %v, nmse %v", c.name, d, c.max, c.nmse)
		}
	}
}

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
