package arch

import (
	"testing"

	"spillway/dtype"
	"spillway/graph"
	"spillway/op"
	"spillway/spec/spectest"
)

// Two documents packed into one sample give the same logits and gradients as each
// in a sample of its own.
func TestPackedDocumentsDoNotMeet(t *testing.T) {
	for _, name := range []string{"gpt2", "llama", "mistral"} {
		t.Run(name, func(t *testing.T) {
			f := open(t, name)
			apart := languageBatch(f.expect["input_ids"], f.expect["targets"])
			ids := f.expect["input_ids"].Type.Shape
			together := packed(apart)

			c := graph.Config{MicroBatchSize: ids[0], Seq: ids[1], DType: dtype.F32, Task: graph.Train}
			one := trace(t, string(f.config), c)
			c.MicroBatchSize, c.Seq, c.Packed = 1, ids[0]*ids[1], true
			all := trace(t, string(f.config), c)
			wantLoss, want, err := spectest.Gradients(one, spectest.Inputs{Params: f.weights, Batch: apart})
			if err != nil {
				t.Fatal(err)
			}
			loss, got, err := spectest.Gradients(all, spectest.Inputs{Params: f.weights, Batch: together})
			if err != nil {
				t.Fatal(err)
			}
			near(t, "loss", []float64{loss}, []float64{wantLoss})
			for param := range want {
				near(t, "gradient of "+param, got[param].F, want[param].F)
			}
		})
	}
}

// packed makes one sample of all, numbered by the part "segments".
func packed(parts map[string]op.Array) map[string]op.Array {
	out := map[string]op.Array{"segments": parts["tokens"].Clone()}
	for i := range out["segments"].I {
		out["segments"].I[i] = int32(i / int(parts["tokens"].Type.Shape[1]))
	}
	for name, a := range parts {
		out[name] = a // the interpreter takes the numbers in the shape of the program
	}
	return out
}
