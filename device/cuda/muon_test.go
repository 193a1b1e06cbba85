package cuda

import (
	"encoding/json"
	"math"
	"os"
	"slices"
	"testing"

	"spillway/dtype"
	"spillway/op"
	"spillway/optim"
	"spillway/shape"
)

// On the GPU: steps of matrices are torch.optim.Muon's, which makes them orthogonal in bf16 too. Each step begins at
// PyTorch's weights; sums in another order change some roundings to 8 bits.
func TestMuonStepsAsPyTorch(t *testing.T) {
	d := openGPU(t, Options{})
	defer d.Close()
	var reference struct {
		Cases []struct {
			Name, Optimizer   string
			Shape             shape.Shape
			Initial           []float64
			Gradients, Values [][]float64
		}
	}
	text, err := os.ReadFile("../../testdata/reference/rules.json")
	if err == nil {
		err = json.Unmarshal(text, &reference)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range reference.Cases {
		o, err := optim.Parse(r.Optimizer)
		if err != nil || o.Name != "muon" {
			continue
		}
		typ := op.Type{DType: dtype.F32, Shape: r.Shape}
		c, err := op.Make(optim.Muon, op.Attr{}, typ, typ, typ, op.Type{DType: dtype.F32, Shape: shape.Of(2)})
		if err != nil {
			t.Fatal(err)
		}
		p, err := d.prepare(c)
		if err != nil {
			t.Fatal(err)
		}
		before, m := r.Initial, op.NewArray(typ)
		for i, g := range r.Gradients {
			scalars, err := o.Scalars(i+1, o.LR, true)
			if err != nil {
				t.Fatal(err)
			}
			in := []op.Array{{Type: typ, F: slices.Clone(before)}, {Type: typ, F: g}, m, {Type: c.In[3], F: []float64{1, 0}}}
			out := runProgramWith(t, d, c, p, in, op.Args{Scalars: scalars})
			var off, size float64
			for k, want := range r.Values[i] {
				off += (out[0].F[k] - want) * (out[0].F[k] - want)
				size += (want - before[k]) * (want - before[k])
			}
			if share := math.Sqrt(off / size); !(share < 1e-2) {
				t.Errorf("%s %v: step %d is off by %.3g of its length", r.Name, r.Shape, i+1, share)
			} else {
				t.Logf("%s %v: step %d is off by %.2g of its length", r.Name, r.Shape, i+1, share)
			}
			before, m = r.Values[i], out[1]
		}
	}
}
