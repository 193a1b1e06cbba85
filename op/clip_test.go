package op_test

import (
	"math"
	"testing"

	"spillway/dtype"
	"spillway/op"
	"spillway/shape"
)

func vector(f []float64) op.Array {
	return op.Array{Type: op.Type{DType: dtype.F32, Shape: shape.Of(len(f))}, F: f}
}

// run applies the rule and the reference of a kind.
func run(t *testing.T, kind op.Kind, attr op.Attr, args op.Args, in, out []op.Array) {
	t.Helper()
	types := make([]op.Type, len(in))
	for i, a := range in {
		types[i] = a.Type
	}
	call, err := op.Make(kind, attr, types...)
	if err == nil {
		err = call.Reference(in, out, args)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// The norm over several tensors and the clipped gradients.
func TestClippingAgreesWithTorch(t *testing.T) {
	var file struct {
		Clipping []struct {
			Limit, Norm        float64
			Gradients, Clipped [][]float64
		}
	}
	readJSON(t, "optimizers.json", &file)
	if len(file.Clipping) == 0 {
		t.Fatal("no clipping")
	}
	for _, c := range file.Clipping {
		partials := op.NewArray(op.Type{DType: dtype.F64, Shape: shape.Of(len(c.Gradients))})
		for i, g := range c.Gradients {
			one := op.NewArray(op.Type{DType: dtype.F64, Shape: shape.Of(1)})
			run(t, op.SumSquares, op.Attr{}, op.Args{}, []op.Array{vector(g)}, []op.Array{one})
			partials.F[i] = one.F[0]
		}
		clip := vector([]float64{0, 0})
		run(t, op.ClipScale, op.Attr{}, op.Args{Scalars: op.ClipScalars(float32(c.Limit), 0)}, []op.Array{partials}, []op.Array{clip})
		if math.Abs(clip.F[1]-c.Norm) > 1e-6*c.Norm {
			t.Errorf("norm %v, PyTorch's is %v", clip.F[1], c.Norm)
		}
		for i, g := range c.Gradients {
			for k := range g {
				if math.Abs(g[k]*clip.F[0]-c.Clipped[i][k]) > 1e-6 {
					t.Fatalf("clipped to %v, PyTorch to %v", g[k]*clip.F[0], c.Clipped[i][k])
				}
			}
		}
	}
}
