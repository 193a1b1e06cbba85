package lora_test

import (
	"errors"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"spillway/arch"
	"spillway/dtype"
	"spillway/graph"
	"spillway/hf"
	"spillway/internal/numtest"
	"spillway/lora"
	"spillway/nn"
	"spillway/op"
	"spillway/safetensors"
	"spillway/spec"
	"spillway/spec/spectest"
	"spillway/tensorfile"
)

// tensors are the values of a folder, by name.
type tensors map[string]tensorfile.Tensor

func (v tensors) Read(param string, first int64, dst []float32) error {
	return v[param].ReadF32(dst, first)
}

// plainModel is a model of testdata/reference without adapters, and how to build it.
func plainModel(t *testing.T, name string) (build func() (nn.Model, error), base tensors) {
	t.Helper()
	f, err := hf.Open("../testdata/reference/" + name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	base = tensors{}
	for _, x := range f.Tensors() {
		base[x.Name] = x
	}
	return func() (nn.Model, error) { net, _, err := arch.New(f.Config); return net, err }, base
}

// filled is the plain model with given values.
func filled(t *testing.T, build func() (nn.Model, error), values lora.Values) adapted {
	t.Helper()
	net, err := build()
	if err != nil {
		t.Fatal(err)
	}
	s, err := spec.Trace("plain", "test", net, graph.Config{MicroBatchSize: 1, Seq: 10, DType: dtype.F32, Task: graph.Infer})
	if err != nil {
		t.Fatal(err)
	}
	a := adapted{s, spectest.Inputs{Params: map[string]op.Array{}, Batch: map[string]op.Array{}}}
	for _, p := range s.Params {
		a.in.Params[p.Name] = read(t, values, p)
	}
	return a
}

// read takes a param in two parts, which must not matter.
func read(t *testing.T, values lora.Values, p spec.Param) op.Array {
	t.Helper()
	n := p.Type.Shape.Elements()
	narrow, cut := make([]float32, n), min(n, n/3+1)
	for _, err := range []error{values.Read(p.Name, cut, narrow[cut:]), values.Read(p.Name, 0, narrow[:cut])} {
		if err != nil {
			t.Fatal(err)
		}
	}
	out := op.NewArray(p.Type)
	for i, f := range narrow {
		out.F[i] = float64(f)
	}
	return out
}

func openAdapter(t *testing.T, name string) *lora.Adapter {
	t.Helper()
	a, err := lora.Open(filepath.Join(peftFolders, name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	return a
}

// A model with an adapter merged in gives, without it, the logits PEFT gives with it.
func TestMergedModelsGivePEFTsLogits(t *testing.T) {
	for name, model := range fixtures {
		build, base := plainModel(t, model)
		m, err := lora.Merge(build, base, []lora.Weighted{{Adapter: openAdapter(t, name), Weight: 1}})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		expect, err := safetensors.Open(filepath.Join(peftFolders, name+".safetensors"))
		if err != nil {
			t.Fatal(err)
		}
		defer expect.Close()
		want, _ := expect.Tensor("logits")
		if d := numtest.Compare(filled(t, build, m).logits(t, int(want.Shape[1])), array(t, want).F); !(d.Max < 1e-5) {
			t.Errorf("%s: logits differ by %v", name, d)
		}
	}
}

// Several adapters combined into one add the sum of what they add.
func TestCombinedAdaptersAddTheSum(t *testing.T) {
	build, base := plainModel(t, "llama")
	list := []lora.Weighted{{Adapter: openAdapter(t, "llama"), Weight: 0.7}, {Adapter: openAdapter(t, "llama-all"), Weight: -0.4}, {Adapter: openAdapter(t, "patterns"), Weight: 1}}
	one, err := lora.Combine("sum", list)
	if err != nil {
		t.Fatal(err)
	}
	both, err := lora.Merge(build, base, list)
	if err != nil {
		t.Fatal(err)
	}
	combined, err := lora.Merge(build, base, []lora.Weighted{{Adapter: one, Weight: 1}})
	if err != nil {
		t.Fatal(err)
	}
	want := filled(t, build, both).logits(t, 96)
	if d := numtest.Compare(filled(t, build, combined).logits(t, 96), want); !(d.Max < 1e-5) {
		t.Errorf("logits differ by %v", d)
	}
	if d := numtest.Compare(filled(t, build, base).logits(t, 96), want); d.Max < 0.01 {
		t.Errorf("the adapters change logits by %v only", d)
	}
	if s := one.Shape("model.layers.1.self_attn.q_proj.lora_A.weight"); s[0] != 4+3+2 {
		t.Errorf("the combined A is %v, want a rank of 9", s)
	}
	for name, says := range map[string]string{"dora": "not part of a low-rank pair", "saved": "not part of a low-rank pair", "gpt2": ""} {
		_, err := lora.Combine("x", []lora.Weighted{{Adapter: openAdapter(t, name), Weight: 1}})
		if (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", name, err, says)
		}
	}
}

// A weight that is not a number would make every number of the model none.
func TestWeightsAreNumbers(t *testing.T) {
	for _, weight := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), 1e300} {
		a := &lora.Adapter{Name: "a"}
		build := func() (nn.Model, error) { return nil, errors.New("not built") }
		if _, err := lora.Merge(build, nil, []lora.Weighted{{Adapter: a, Weight: weight}}); err == nil || !strings.Contains(err.Error(), "its weight is") {
			t.Errorf("%v: %v", weight, err)
		}
		if _, err := lora.Combine("c", []lora.Weighted{{Adapter: a, Weight: weight}}); err == nil || !strings.Contains(err.Error(), "its weight is") {
			t.Errorf("%v: %v", weight, err)
		}
	}
}
