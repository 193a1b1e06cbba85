package op_test

import (
	"testing"

	"spillway/dtype"
	"spillway/internal/numtest"
	"spillway/op"
	"spillway/optim"
	"spillway/shape"
)

// Five updates of a vector, a matrix and two matrices at once follow PyTorch's and
// transformers', which are float32.
func TestAdafactorAgreesWithPyTorch(t *testing.T) {
	var file struct {
		Adafactors []struct {
			Name, Optimizer   string
			Shape             shape.Shape
			Initial           []float64
			Gradients, Values [][]float64
			State             map[string][]float64 `json:"final_state"`
		}
	}
	readJSON(t, "optimizers.json", &file)
	if len(file.Adafactors) < 12 {
		t.Fatalf("%d runs", len(file.Adafactors))
	}
	for _, o := range file.Adafactors {
		c, err := optim.Parse(o.Optimizer)
		if err != nil {
			t.Fatal(err)
		}
		keeping, err := c.StatesFor()
		if err != nil {
			t.Fatal(err)
		}
		w := op.Array{Type: op.Type{DType: dtype.F32, Shape: o.Shape}, F: o.Initial}
		in, out := []op.Array{w, {}}, []op.Array{w}
		kept := keeping("w", o.Shape)
		for _, s := range kept {
			a := op.NewArray(s.Type)
			in, out = append(in, a), append(out, a)
		}
		in = append(in, vector([]float64{1, 0}))
		for i, g := range o.Gradients {
			in[1] = op.Array{Type: w.Type, F: g}
			f, err := c.Args(i+1, c.LR, true)
			if err != nil {
				t.Fatal(err)
			}
			run(t, op.Adafactor, op.Attr{}, op.Args{Scalars: f}, in, out)
			if d := numtest.Compare(w.F, o.Values[i]); !(d.Max < 1e-6) {
				t.Errorf("%s %v after %d updates: %v from theirs", o.Name, o.Shape, i+1, d)
			}
		}
		for i, s := range kept {
			if want, ok := o.State[s.Name]; ok { // PyTorch calls them otherwise
				if d := numtest.Compare(out[1+i].F, want); !(d.Max < 1e-6) {
					t.Errorf("%s %v: %s is %v from theirs", o.Name, o.Shape, s.Name, d)
				}
			} else if o.Name != "torch" {
				t.Errorf("%s %v keeps no %s", o.Name, o.Shape, s.Name)
			}
		}
	}
}
