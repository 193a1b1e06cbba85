package arch

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"spillway/dtype"
	"spillway/graph"
	"spillway/internal/numtest"
	"spillway/op"
	"spillway/safetensors"
	"spillway/spec"
	"spillway/spec/spectest"
)

// Whole models against numbers from PyTorch (testdata/reference), computed from the
// same weights by plain loops in float64, without any backend.

const (
	fixtures = "../testdata/reference"
	// tolerance is relative to the largest number of a tensor. Two right programs
	// in float32 differ by up to 3e-6 (the fixtures' README).
	tolerance = 1e-5
)

// tensors reads a whole safetensors file.
func tensors(t *testing.T, path string) map[string]op.Array {
	t.Helper()
	f, err := safetensors.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all := map[string]op.Array{}
	for _, tensor := range f.Tensors() {
		raw := make([]byte, tensor.Type.Bytes(tensor.Shape.Elements()))
		if _, err := tensor.ReadAt(raw, 0); err != nil {
			t.Fatal(err)
		}
		all[tensor.Name] = decode(t, op.Type{DType: tensor.Type, Shape: tensor.Shape}, raw)
	}
	return all
}

// decode also takes the 64-bit integers of PyTorch, as 32-bit ones.
func decode(t *testing.T, typ op.Type, raw []byte) op.Array {
	t.Helper()
	if typ.DType == dtype.I64 {
		var low []byte
		for i := 0; i < len(raw); i += 8 {
			low = append(low, raw[i:i+4]...)
		}
		typ.DType, raw = dtype.I32, low
	}
	a, err := op.Decode(typ, raw)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// fixture is a folder of expectations.
type fixture struct {
	config  []byte
	weights map[string]op.Array
	expect  map[string]op.Array
	numbers struct {
		Loss   float64            `json:"loss"`
		Mask   string             `json:"mask"`
		Losses map[string]float64 `json:"losses"`
	}
}

func open(t *testing.T, name string) fixture {
	t.Helper()
	dir := filepath.Join(fixtures, name)
	f := fixture{
		config:  read(t, filepath.Join(dir, "config.json")),
		weights: tensors(t, filepath.Join(dir, "model.safetensors")),
		expect:  tensors(t, filepath.Join(dir, "expect.safetensors")),
	}
	if err := json.Unmarshal(read(t, filepath.Join(dir, "expect.json")), &f.numbers); err != nil {
		t.Fatal(err)
	}
	return f
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestDecodersAgreeWithTransformers(t *testing.T) {
	for _, name := range []string{"gpt2", "llama", "llama2-tied", "mistral", "qwen2", "qwen3"} {
		t.Run(name, func(t *testing.T) {
			f := open(t, name)
			in := spectest.Inputs{Params: f.weights, Batch: languageBatch(f.expect["input_ids"], f.expect["targets"])}
			ids := f.expect["input_ids"].Type.Shape
			c := graph.Config{MicroBatchSize: ids[0], Seq: ids[1], DType: dtype.F32, Task: graph.Infer}

			logits, err := spectest.Forward(trace(t, string(f.config), c), in)
			if err != nil {
				t.Fatal(err)
			}
			near(t, "logits", logits[0].F, f.expect["logits"].F)
			c.Task = graph.Train
			f.gradients(t, trace(t, string(f.config), c), in)
		})
	}
}

// languageBatch makes the parts of a batch of whole documents.
func languageBatch(ids, targets op.Array) map[string]op.Array {
	positions, counted := ids.Clone(), 0
	for i := range positions.I {
		positions.I[i] = int32(i % int(ids.Type.Shape[1]))
		if targets.I[i] != op.IgnoreIndex {
			counted++
		}
	}
	return map[string]op.Array{
		"tokens": ids, "targets": targets, "positions": positions, "scale": {F: []float64{1 / float64(counted)}},
	}
}

func TestEncodersAgreeWithPyTorch(t *testing.T) {
	for _, name := range []string{"encoder-post-relu", "encoder-post-gelu", "encoder-pre-relu", "encoder-pre-gelu"} {
		for _, mask := range []string{"none", "src_mask", "src_key_padding_mask", "both"} {
			t.Run(name+"/"+mask, func(t *testing.T) {
				f := open(t, name)
				in := spectest.Inputs{Params: f.weights, Batch: f.encoderBatch()}
				config := withMask(t, f.config, mask)
				src := f.expect["src"].Type.Shape
				c := graph.Config{MicroBatchSize: src[0], Seq: src[1], DType: dtype.F32, Task: graph.Infer}

				out, err := spectest.Forward(trace(t, config, c), in)
				if err != nil {
					t.Fatal(err)
				}
				near(t, "output", out[0].F, f.expect["output."+mask].F)
				c.Task = graph.Eval
				loss, err := spectest.Forward(trace(t, config, c), in)
				if err != nil {
					t.Fatal(err)
				}
				near(t, "loss", loss[0].F, []float64{f.numbers.Losses[mask]})
				if c.Task = graph.Train; mask == f.numbers.Mask {
					f.gradients(t, trace(t, config, c), in)
				}
			})
		}
	}
}

// withMask adds to a config which masks its batches bring.
func withMask(t *testing.T, config []byte, mask string) string {
	t.Helper()
	var values map[string]any
	if err := json.Unmarshal(config, &values); err != nil {
		t.Fatal(err)
	}
	values["src_mask"] = mask == "src_mask" || mask == "both"
	values["src_key_padding_mask"] = mask == "src_key_padding_mask" || mask == "both"
	raw, err := json.Marshal(values)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func (f fixture) encoderBatch() map[string]op.Array {
	visible := f.expect["src_key_padding_mask"].Clone()
	for i, hidden := range visible.I {
		visible.I[i] = 1 - hidden
	}
	target := f.expect["target"]
	return map[string]op.Array{
		"input": f.expect["src"], "target": target, "mask": f.expect["src_mask"], "key_mask": visible,
		"scale": {F: []float64{1 / float64(len(target.F))}},
	}
}

// gradients compares the loss and every gradient; params and file hold the same names.
func (f fixture) gradients(t *testing.T, m *spec.Model, in spectest.Inputs) {
	t.Helper()
	loss, grads, err := spectest.Gradients(m, in)
	if err != nil {
		t.Fatal(err)
	}
	near(t, "loss", []float64{loss}, []float64{f.numbers.Loss})
	if len(grads) != len(f.weights) {
		t.Errorf("%d gradients for %d weights in the file", len(grads), len(f.weights))
	}
	for name, w := range f.weights {
		want, ok := f.expect["grad."+name]
		if !ok || !slices.Equal(want.Type.Shape, w.Type.Shape) {
			t.Fatalf("no gradient of %s to compare with", name)
		}
		near(t, "gradient of "+name, grads[name].F, want.F)
	}
}

func near(t *testing.T, what string, got, want []float64) {
	t.Helper()
	if d := numtest.Compare(got, want); !(d.Max <= tolerance) || math.IsNaN(d.Max) {
		t.Errorf("%s is off by %v", what, d)
	}
}
