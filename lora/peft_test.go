package lora_test

import (
	"encoding/binary"
	"flag"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"spillway/arch"
	"spillway/dtype"
	"spillway/graph"
	"spillway/hf"
	"spillway/internal/numtest"
	"spillway/internal/vfs"
	"spillway/lora"
	"spillway/op"
	"spillway/safetensors"
	"spillway/shape"
	"spillway/spec"
	"spillway/spec/spectest"
	"spillway/tensorfile"
)

// keep leaves adapters behind, for tools/reference/loads.py.
var keep = flag.String("keep", "", "an empty folder to write adapters to")

const peftFolders = "../hf/testdata/adapters"

// adapted is a model of testdata/reference with adapters, and their numbers.
type adapted struct {
	*spec.Model
	in spectest.Inputs
}

// attachTo makes the model of a folder with adapters, its weights read, for one row of
// ten tokens.
func attachTo(t *testing.T, dir string, o lora.Options, task graph.Task) adapted {
	t.Helper()
	base, err := hf.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { base.Close() })
	config, err := os.ReadFile(filepath.Join(dir, hf.ConfigName))
	if err != nil {
		t.Fatal(err)
	}
	m, _, err := arch.FromConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lora.Attach(m, o); err != nil {
		t.Fatal(err)
	}
	s, err := spec.Trace("adapted", "test", m, graph.Config{MicroBatchSize: 1, Seq: 10, DType: dtype.F32, Task: task})
	if err != nil {
		t.Fatal(err)
	}
	a := adapted{s, spectest.Inputs{Params: map[string]op.Array{}, Batch: map[string]op.Array{}}}
	a.take(t, base.Tensors())
	return a
}

// take fills params by their names and says how many there were.
func (a adapted) take(t *testing.T, tensors []tensorfile.Tensor) (n int) {
	t.Helper()
	wanted := map[string]spec.Param{}
	for _, p := range a.Params {
		wanted[p.Name] = p
	}
	for _, x := range tensors {
		p, ok := wanted[x.Name]
		if !ok {
			t.Fatalf("the model has no param %s", x.Name)
		}
		if !p.Type.Shape.Equal(x.Shape) {
			t.Fatalf("%s has the shape %v, the model wants %v", x.Name, x.Shape, p.Type.Shape)
		}
		a.in.Params[x.Name] = array(t, x)
		n++
	}
	return n
}

func array(t *testing.T, x tensorfile.Tensor) op.Array {
	t.Helper()
	narrow := make([]float32, x.Shape.Elements())
	if err := x.ReadF32(narrow, 0); err != nil {
		t.Fatal(err)
	}
	out := op.NewArray(op.Type{DType: dtype.F32, Shape: x.Shape})
	for i, f := range narrow {
		out.F[i] = float64(f)
	}
	return out
}

// feed is the batch of the fixtures: ten tokens, each to be predicted from those before.
func (a adapted) feed(vocab int) {
	token := func(i int) int32 { return int32(i * 3 % vocab) }
	for _, p := range a.Batch {
		x := op.NewArray(p.Type)
		for i := range x.I {
			switch {
			case p.Name == "tokens":
				x.I[i] = token(i)
			case p.Name == "positions":
				x.I[i] = int32(i)
			case p.Name == "targets" && i < 9:
				x.I[i] = token(i + 1)
			case p.Name == "targets":
				x.I[i] = op.IgnoreIndex
			}
		}
		if p.Name == "scale" {
			x.F[0] = 1.0 / 9
		}
		a.in.Batch[p.Name] = x
	}
}

// logits of the tokens the fixtures have.
func (a adapted) logits(t *testing.T, vocab int) []float64 {
	t.Helper()
	a.feed(vocab)
	out, err := spectest.Forward(a.Model, a.in)
	if err != nil {
		t.Fatal(err)
	}
	return out[0].F
}

// fixtures are the adapters PEFT made, and the models they are for.
var fixtures = map[string]string{
	"llama": "llama", "llama-all": "llama", "gpt2": "gpt2", "dora": "qwen2", "dora-gpt2": "gpt2", "bias-all": "qwen2",
	"bias-lora-only": "qwen2", "saved": "llama", "patterns": "llama", "layers": "llama",
}

// loaded is the model of a fixture with its adapter, and what PEFT made of them.
func loaded(t *testing.T, name string, task graph.Task) (adapted, *safetensors.File) {
	t.Helper()
	f, err := hf.OpenAdapter(filepath.Join(peftFolders, name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	o, err := lora.FromPEFT(f.Config)
	if err != nil {
		t.Fatal(err)
	}
	o.Dropout = 0 // the fixtures' gradients are without
	a := attachTo(t, "../testdata/reference/"+fixtures[name], o, task)
	if n := a.take(t, f.Tensors()); n != len(a.Params)-frozen(a.Model) {
		t.Errorf("%s: %d tensors for %d params that are trained", name, n, len(a.Params)-frozen(a.Model))
	}
	expect, err := safetensors.Open(filepath.Join(peftFolders, name+".safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { expect.Close() })
	return a, expect
}

// An adapter that PEFT made gives here the logits it gives there.
func TestAdaptersOfPEFTGiveItsLogits(t *testing.T) {
	for name := range fixtures {
		a, expect := loaded(t, name, graph.Infer)
		want, _ := expect.Tensor("logits")
		if d := numtest.Compare(a.logits(t, int(want.Shape[1])), array(t, want).F); !(d.Max < 1e-5) {
			t.Errorf("%s: logits differ by %v", name, d)
		}
	}
}

// So are the loss and the gradients of everything that is trained.
func TestAdaptersOfPEFTHaveItsGradients(t *testing.T) {
	for name := range fixtures {
		a, expect := loaded(t, name, graph.Train)
		logits, _ := expect.Tensor("logits")
		a.feed(int(logits.Shape[1]))
		loss, grads, err := spectest.Gradients(a.Model, a.in)
		if err != nil {
			t.Fatal(err)
		}
		if want, _ := expect.Tensor("loss"); math.Abs(loss-array(t, want).F[0]) > 1e-5 {
			t.Errorf("%s: the loss is %v, want %v", name, loss, array(t, want).F[0])
		}
		compared := 0
		for _, x := range expect.Tensors() {
			param, ok := strings.CutPrefix(x.Name, "grad.")
			if !ok {
				continue
			}
			compared++
			if d := numtest.Compare(grads[param].F, array(t, x).F); !(d.Max < 2e-5) {
				t.Errorf("%s: the gradient of %s differs by %v", name, param, d)
			}
		}
		if compared != len(grads) || compared == 0 {
			t.Errorf("%s: %d gradients, PEFT has %d", name, len(grads), compared)
		}
	}
}

func frozen(m *spec.Model) (n int) {
	for _, p := range m.Params {
		if p.Frozen {
			n++
		}
	}
	return n
}

// What is written for PEFT reads back, and gives the logits that PEFT gave when it read
// it; with -keep it stays, with ours, for tools/reference/loads.py.
func TestAdaptersAreWrittenForPEFT(t *testing.T) {
	dir := t.TempDir()
	if *keep != "" {
		dir = *keep
	}
	given, err := safetensors.Open(filepath.Join(peftFolders, "written.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer given.Close()
	for base, o := range map[string]lora.Options{
		"llama": {Targets: []string{lora.AllLinear}, Rank: 3, Alpha: 4, Dropout: 0.25},
		"gpt2":  {Targets: []string{"c_attn", "c_fc"}, Rank: 2, Alpha: 5, RankStabilized: true},
		"qwen3": {TargetPattern: `model\.layers\.1\..*_proj`, Rank: 4, Alpha: 8},
		"qwen2": {Targets: []string{"q_proj", "down_proj"}, Rank: 4, Alpha: 8, DoRA: true, Bias: lora.AllBiases, Layers: []int{1}},
		"mistral": {Targets: []string{lora.AllLinear}, Exclude: []string{"up_proj"}, Rank: 2, Alpha: 4, ModulesToSave: []string{"lm_head"},
			RankPattern: map[string]int64{"k_proj": 3}, AlphaPattern: map[string]float64{"v_proj": 9}},
	} {
		a := attachTo(t, "../testdata/reference/"+base, o, graph.Infer)
		config, err := o.PEFT("testdata/reference/"+base, base == "gpt2")
		if err != nil {
			t.Fatal(err)
		}
		out := hf.Adapter{Config: config}
		for i, p := range a.Params {
			if !p.Frozen {
				a.in.Params[p.Name] = numtest.Random(p.Type, uint64(i))
				out.Tensors = append(out.Tensors, source(p.Name, a.in.Params[p.Name]))
			}
		}
		path := filepath.Join(dir, base)
		if err := out.Write(path); err != nil {
			t.Fatal(err)
		}
		back, err := hf.OpenAdapter(path)
		if err != nil {
			t.Fatal(err)
		}
		defer back.Close()
		if again, err := lora.FromPEFT(back.Config); err != nil || again.Alpha != o.Alpha || again.Rank != o.Rank || again.RankStabilized != o.RankStabilized || again.TargetPattern != o.TargetPattern || strings.Join(again.Targets, " ") != strings.Join(o.Targets, " ") {
			t.Errorf("%s: %+v became %+v (%v)", base, o, again, err)
		}
		if len(back.Tensors()) != len(out.Tensors) {
			t.Errorf("%s: %d tensors, want %d", base, len(back.Tensors()), len(out.Tensors))
		}
		if want, ok := given.Tensor(base); ok {
			if d := numtest.Compare(a.logits(t, 7), array(t, want).F); !(d.Max < 1e-5) {
				t.Errorf("%s: PEFT gave other logits for the adapter written here, by %v", base, d)
			}
		} else {
			t.Errorf("%s: what PEFT gives is not known; run tools/reference/loads.py", base)
		}
		logits := op.NewArray(op.Type{DType: dtype.F32, Shape: shape.Of(len(a.logits(t, 7)))})
		copy(logits.F, a.logits(t, 7))
		if err := safetensors.WriteFile(vfs.OS, filepath.Join(path, "expect.safetensors"), []tensorfile.Output{source("logits", logits)}); err != nil {
			t.Fatal(err)
		}
	}
}

func source(name string, a op.Array) tensorfile.Output {
	return tensorfile.Output{Name: name, Type: dtype.F32, Shape: a.Type.Shape, Write: func(w io.Writer) error {
		var b []byte
		for _, f := range a.F {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(f)))
		}
		_, err := w.Write(b)
		return err
	}}
}

func TestUnknownAdaptersAreRefused(t *testing.T) {
	for key, text := range map[string]string{
		"pissa": `"init_lora_weights": "pissa_niter_16"`, "use_qalora": `"use_qalora": true`, "target_parameters": `"target_parameters": ["w"]`,
	} {
		c, err := hf.ParseAdapterConfig([]byte(`{"peft_type": "LORA", "target_modules": ["q_proj"], ` + text + `}`))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := lora.FromPEFT(c); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%s gives %v", text, err)
		}
	}
}
