package run_test

import (
	"context"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spillway"
	"spillway/checkpoint"
	"spillway/dtype"
	"spillway/executor"
	"spillway/lora"
	"spillway/plan"
	"spillway/quant"
	"spillway/safetensors"
	"spillway/train"
)

var keptModules = []string{"lm_head", "norm", `re:model\.layers\.\d+\.(input|post_attention)_layernorm`, "mlp"}

// Modules that are kept in f32 while the rest is in bf16 give the loss and the gradients
// that PyTorch gives for such a model: nearer than those are to the gradients of a model all
// in f32, which is what rounding to bf16 does. Their weights are never rounded and have no
// masters.
func TestKeptModulesAreTorchs(t *testing.T) {
	s := decoder(t, "llama")
	file, err := safetensors.Open(filepath.Join(s.Dir, "exceptions.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	o := s.options(spillway.Train)
	o.Precision, o.Exceptions = dtype.BF16, []spillway.Exception{{Modules: keptModules, Type: dtype.F32}}
	job, e := start(t, s.model, o)
	sameAsFile(t, e, s)
	gradients := map[string][]float32{}
	e.OnGradient(func(g executor.Tensor) error {
		if g.Type.DType == dtype.F32 {
			gradients[g.Param.Name] = read(t, e, g)
		}
		return nil
	})
	run, err := train.New(job, s.feed, train.Config{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := run.Step()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range file.Tensors() {
		numbers := make([]float32, want.Shape.Elements())
		if err := want.ReadF32(numbers, 0); err != nil {
			t.Fatal(err)
		}
		name, isGradient := strings.CutPrefix(want.Name, "gradient.")
		if !isGradient {
			if math.Abs(r.Loss-float64(numbers[0])) > 1e-3*r.Loss {
				t.Errorf("the loss is %v, want %v", r.Loss, numbers[0])
			}
		} else if far, by := distance(gradients[name], numbers), distance(s.Floats(t, "grad."+name), numbers); !(far < by) {
			t.Errorf("the gradient of %s is %v of its length away, that in f32 %v", name, far, by)
		}
	}
	if rounded(gradients["lm_head.weight"]) {
		t.Error("the gradient of lm_head has the digits of bf16")
	}
}

// sameAsFile checks types and values after loading.
func sameAsFile(t *testing.T, e *executor.Executor, s subject) {
	t.Helper()
	masters := map[string]bool{}
	for _, m := range e.States() {
		masters[m.Param.Name] = masters[m.Param.Name] || m.State == executor.Master
	}
	full := 0
	for _, w := range e.Weights() {
		kept := w.Type.DType == dtype.F32
		if masters[w.Param.Name] == kept {
			t.Errorf("%s in %v: master %v", w.Param.Name, w.Type.DType, masters[w.Param.Name])
		}
		from, ok := s.model.Folder.Tensor(w.Param.Name)
		if !kept || !ok {
			continue
		}
		want := make([]float32, from.Shape.Elements())
		if err := from.ReadF32(want, 0); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(read(t, e, w), want) {
			t.Errorf("%s was changed by loading", w.Param.Name)
		}
		full++
	}
	if full != 12 {
		t.Errorf("%d weights are in f32, want 12", full)
	}
}

// distance is the length of the difference, as a share of the right one's.
func distance(got, want []float32) float64 {
	if len(got) != len(want) {
		return math.Inf(1)
	}
	var apart, all float64
	for i, w := range want {
		apart += float64(got[i]-w) * float64(got[i]-w)
		all += float64(w) * float64(w)
	}
	return math.Sqrt(apart / all)
}

// rounded says whether all numbers are bf16's.
func rounded(list []float32) bool {
	return !slices.ContainsFunc(list, func(f float32) bool { return dtype.FromBF16(dtype.ToBF16(f)) != f })
}

// A training run with kept modules goes on from a checkpoint bit for bit.
func TestKeptModulesAreSaved(t *testing.T) {
	s := decoder(t, "llama")
	o := s.options(spillway.Train)
	o.Precision, o.Exceptions = dtype.BF16, []spillway.Exception{{Modules: keptModules, Type: dtype.F32}}
	losses := func(iterations int64, dir string) (list []float64) {
		job := planned(t, s.model, o)
		c := train.Config{Iterations: iterations, Report: func(r train.Report) { list = append(list, r.Loss) }}
		c.Save = &train.Save{Dir: checkpoint.Dir{Path: dir}}
		r, err := train.Run(context.Background(), job, s.feed, c)
		if err != nil || r.Checkpoint == "" {
			t.Fatal(r, err)
		}
		return list
	}
	dir := t.TempDir()
	whole := losses(6, t.TempDir())
	parts := append(losses(3, dir), losses(6, dir)...)
	if !slices.Equal(whole, parts) || whole[5] >= whole[0] {
		t.Errorf("at once %v, in two parts %v", whole, parts)
	}
}

// Next to a quantized base, modules can be left as they are, or kept in f32.
func TestKeptModulesAreNotQuantized(t *testing.T) {
	m := open(t, "llama-2-7b")
	o := spillway.Options{Task: spillway.QLoRA, Seq: 64, Precision: dtype.BF16, Machine: parse(t, "gpu:80GiB,host:64GiB"),
		Adapters:   lora.Options{Targets: []string{"q_proj"}, Rank: 8, Alpha: 8, Base: quant.NF4},
		Exceptions: []spillway.Exception{{Modules: []string{"down_proj"}}, {Modules: []string{"model.layers.7.self_attn"}, Type: dtype.F32}}}
	job, err := m.Standard(o)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]dtype.Type{
		"model.layers.3.mlp.up_proj.weight": quant.NF4, "model.layers.3.mlp.down_proj.weight": dtype.BF16,
		"model.layers.7.self_attn.k_proj.weight": dtype.F32, "model.layers.7.self_attn.q_proj.lora_A.weight": dtype.F32,
		"model.layers.8.self_attn.k_proj.weight": quant.NF4,
	} {
		if got := typeOf(job.Plan, name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
}

func typeOf(p *plan.Plan, param string) dtype.Type {
	for _, s := range p.Slabs {
		for _, q := range s.Params {
			if q.Name == param {
				return q.Type.DType
			}
		}
	}
	return dtype.Invalid
}

func TestKeptRefuses(t *testing.T) {
	m := open(t, "gpt2")
	for want, k := range map[string]spillway.Exception{
		`none is named "nose"; there are attn`:           {Modules: []string{"lm_head", "nose"}, Type: dtype.F32},
		"in f16: they can be f32, or bf16 like the rest": {Modules: []string{"lm_head"}, Type: dtype.F16},
		"missing closing": {Modules: []string{"re:(h"}, Type: dtype.F32},
	} {
		_, err := m.Standard(spillway.Options{Task: spillway.Train, Seq: 64, Precision: dtype.BF16, Machine: parse(t, "gpu:80GiB,host:64GiB"), Exceptions: []spillway.Exception{k}})
		if err == nil || !strings.Contains(err.Error(), strings.TrimSuffix(want, " attn")) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
