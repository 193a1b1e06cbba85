package optim

import (
	"encoding/json"
	"os"
	"testing"

	"spillway/dtype"
	"spillway/internal/numtest"
	"spillway/op"
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
	text, err := os.ReadFile("../testdata/reference/optimizers.json")
	if err == nil {
		err = json.Unmarshal(text, &file)
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(file.Adafactors) < 12 {
		t.Fatalf("%d runs", len(file.Adafactors))
	}
	for _, o := range file.Adafactors {
		c, err := Parse(o.Optimizer)
		if err != nil {
			t.Fatal(err)
		}
		states, err := c.StatesFor(nil)
		if err != nil {
			t.Fatal(err)
		}
		w := op.Array{Type: op.Type{DType: dtype.F32, Shape: o.Shape}, F: o.Initial}
		in, out := []op.Array{w, {}}, []op.Array{w}
		kept := states("w", o.Shape)
		for _, s := range kept {
			a := op.NewArray(s.Type)
			in, out = append(in, a), append(out, a)
		}
		in = append(in, op.Array{Type: op.Type{DType: dtype.F32, Shape: shape.Of(2)}, F: []float64{1, 0}})
		for i, g := range o.Gradients {
			in[1] = op.Array{Type: w.Type, F: g}
			f, err := c.Scalars(i+1, c.LR, true)
			if err != nil {
				t.Fatal(err)
			}
			types := make([]op.Type, len(in))
			for k, a := range in {
				types[k] = a.Type
			}
			call, err := op.Make(Adafactor, op.Attr{}, types...)
			if err == nil {
				err = call.Reference(in, out, op.Args{Scalars: f})
			}
			if err != nil {
				t.Fatal(err)
			}
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
