package inspect

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spillway"
	"spillway/optim"
)

const llama = "../testdata/reference/llama"

// header reads the header of a safetensors file, and what follows it.
func header(t *testing.T, file string) (tensors map[string]map[string]any, data []byte) {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	end := 8 + binary.LittleEndian.Uint64(raw)
	if err := json.Unmarshal(raw[8:end], &tensors); err != nil {
		t.Fatal(err)
	}
	delete(tensors, "__metadata__")
	return tensors, raw[end:]
}

// The sums are those of the file's own header.
func TestFolderIsCounted(t *testing.T) {
	tensors, data := header(t, filepath.Join(llama, "model.safetensors"))
	params := int64(0)
	for _, x := range tensors {
		n := int64(1)
		for _, dim := range x["shape"].([]any) {
			n *= int64(dim.(float64))
		}
		params += n
	}
	r, err := Folder(llama, Options{Tensors: true})
	if err != nil {
		t.Fatal(err)
	}
	want := Type{"f32", len(tensors), params, int64(len(data))}
	if len(r.Types) != 1 || r.Types[0] != want || len(r.Files) != 1 || r.Files[0] != (File{"model.safetensors", len(tensors), int64(len(data))}) {
		t.Errorf("types %+v, files %+v; want %+v", r.Types, r.Files, want)
	}
	if len(r.Problems) > 0 || r.Model.Params != params || len(r.Tensors) != len(tensors) {
		t.Errorf("problems %v, %d params of %d, %d tensors", r.Problems, r.Model.Params, params, len(r.Tensors))
	}
}

// A tensor that is missing, one of another shape and one that nobody knows are problems, each
// by its name, and nothing else is.
func TestFolderProblems(t *testing.T) {
	tensors, data := header(t, filepath.Join(llama, "model.safetensors"))
	gate := tensors["model.layers.1.mlp.gate_proj.weight"]
	tensors["model.layers.1.mlp.other.weight"] = gate
	delete(tensors, "model.layers.1.mlp.gate_proj.weight")
	slices.Reverse(tensors["model.layers.0.mlp.down_proj.weight"]["shape"].([]any))
	text, err := json.Marshal(tensors)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	config, err := os.ReadFile(filepath.Join(llama, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	file := append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...), data...)
	for name, content := range map[string][]byte{"config.json": config, "model.safetensors": file} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	r, err := Folder(dir, Options{Verify: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"model.layers.1.mlp.gate_proj.weight [", "is missing", "down_proj.weight has the shape", "mlp.other.weight", "only checkpoints have checksums"} {
		if !strings.Contains(strings.Join(r.Problems, "\n"), want) {
			t.Errorf("%q is not among %q", want, r.Problems)
		}
	}
	if len(r.Problems) != 4 {
		t.Errorf("%d problems: %q", len(r.Problems), r.Problems)
	}
}

func TestAdapterFolder(t *testing.T) {
	dir := "../hf/testdata/adapters/llama"
	r, err := Folder(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var said struct {
		R       int      `json:"r"`
		Alpha   float64  `json:"lora_alpha"`
		Targets []string `json:"target_modules"`
	}
	raw, err := os.ReadFile(filepath.Join(dir, "adapter_config.json"))
	if err == nil {
		err = json.Unmarshal(raw, &said)
	}
	if err != nil {
		t.Fatal(err)
	}
	if r.Model != nil || r.Adapter.Rank != said.R || r.Adapter.Alpha != said.Alpha || len(strings.Split(r.Adapter.Targets, ", ")) != len(said.Targets) {
		t.Errorf("%+v, the config says %+v", r.Adapter, said)
	}
	tensors, data := header(t, filepath.Join(dir, "adapter_model.safetensors"))
	if r.Adapter.Params*4 != int64(len(data)) || r.Files[0].Tensors != len(tensors) {
		t.Errorf("%d params in %d bytes, files %+v", r.Adapter.Params, len(data), r.Files)
	}
}

// Bytes per param, where the guides go wrong: masters are there, frozen weights
// count, adapters alone have optimizer state, SGD without momentum has none, scales
// of 4-bit weights count.
func TestMemoryFormulas(t *testing.T) {
	const (
		params   = 1_235_814_400
		linear   = 973_078_528 // in the layers, which QLoRA packs
		adapters = 11_272_192  // rank 16 on all of them
	)
	m, err := spillway.Open("llama-3.2-1b")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	rows := func(optimizer string) map[string]MemoryRow {
		o := MemoryOptions{MicroBatchSize: 1, Seq: 512, Rank: 16, RulesOfThumb: true}
		if o.Optimizer, err = optim.Parse(optimizer); err != nil {
			t.Fatal(err)
		}
		got, err := EstimateMemory(m, o)
		if err != nil || got.Params != params || len(got.Rows) != 8 {
			t.Fatalf("%+v, %v", got, err)
		}
		byName := map[string]MemoryRow{}
		for _, r := range got.Rows {
			byName[r.Task+" "+r.Precision] = r
			if sum := r.Weights + r.Gradients + r.Master + r.State + r.Activations + r.Workspace + r.Other; sum != r.Total {
				t.Errorf("%s in %s: the parts add up to %d, the total is %d", r.Task, r.Precision, sum, r.Total)
			}
		}
		return byName
	}
	near := func(what string, got int64, want float64) {
		t.Helper()
		if math.Abs(float64(got)-want) > 0.001*want+1<<20 {
			t.Errorf("%s: %d bytes, the formula gives %.0f", what, got, want)
		}
	}
	r := rows("adamw")
	near("bf16 weights", r["infer bf16"].Weights, 2*params)
	near("fp32 weights", r["train fp32"].Weights, 4*params)
	near("master weights with bf16", r["train bf16"].Master, 4*params)
	near("master weights with fp32", r["train fp32"].Master, 0)
	near("moments", r["train bf16"].State, 8*params)
	near("weights of LoRA", r["lora bf16"].Weights, 2*(params+adapters))
	near("moments of LoRA", r["lora bf16"].State, 8*adapters)
	// 4 bits, a byte of scale for every 64 of them and an f32 for every 256 scales; all
	// else as it was
	near("weights of QLoRA", r["qlora bf16"].Weights, (0.5+1.0/64+4.0/64/256)*linear+2*(params-linear+adapters))
	near("moments of SGD", rows("sgd")["train fp32"].State, 0)
	near("the rule of thumb", r["train fp32"].Thumb.Bytes, 16*params)
	if n := r["lora bf16"].Trainable; n != adapters {
		t.Errorf("%d trainable params of LoRA", n)
	}
}
