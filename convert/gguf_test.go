package convert_test

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"spillway/chat"
	"spillway/convert"
	"spillway/dtype"
	"spillway/gguf"
	"spillway/hf"
	"spillway/quant"
	"spillway/quant/stored"
)

// A folder written as a GGUF file and read again is the same model: in f32 the same numbers,
// quantized within the error of the type; and the same sizes and rotations.
func TestGGUFAndBack(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	for _, model := range []string{"llama", "llama2-tied", "mistral", "qwen2", "qwen3"} {
		for recipe, most := range map[string]float64{"f32": 0, "f16": 1e-3, "bf16": 5e-3, "q8_0": 1e-2, "q4_0": 0.15, "q4_k_m": 0.15} {
			from, err := hf.Open("../testdata/reference/" + model)
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(t.TempDir(), model+".gguf")
			if _, err := convert.GGUF(t.Context(), from, path, recipe, convert.Options{}); err != nil {
				t.Fatal(err)
			}
			back, err := hf.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			a, b := from.Config, back.Config
			if a.ModelType != b.ModelType || a.HeadDim != b.HeadDim || a.Tied != b.Tied || a.Window(0) != b.Window(0) || a.Rope.Type != b.Rope.Type || a.Rope.OriginalMaxPositions != b.Rope.OriginalMaxPositions || float32(a.Rope.Theta) != float32(b.Rope.Theta) || float32(a.NormEps) != float32(b.NormEps) {
				t.Errorf("%s: the config is %+v, was %+v", model, b, a)
			}
			list, err := stored.Collect(back.Tensors())
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range list {
				was, ok := from.Tensor(x.Name)
				if !ok || !was.Shape.Equal(x.Shape) {
					t.Fatalf("%s has a tensor %s%v, had %v", model, x.Name, x.Shape, was.Shape)
				}
				got, want := make([]float32, x.Shape.Elements()), make([]float32, x.Shape.Elements())
				if err := x.ReadF32(got, 0); err != nil {
					t.Fatal(err)
				}
				if err := was.ReadF32(want, 0); err != nil {
					t.Fatal(err)
				}
				for i := range want {
					if d := math.Abs(float64(got[i] - want[i])); d > most*float64(quant.AbsMax(want)) {
						t.Fatalf("%s as %s: element %d of %s is %v, was %v", model, recipe, i, x.Name, got[i], want[i])
					}
				}
			}
			back.Close()
			from.Close()
		}
	}
}

// The tokens that end a text are in the file, without a tokenizer too, also those that generation_config.json alone
// has: else a model would go on behind the end of its turn.
func TestGGUFEnds(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	for eos, want := range map[string][]int{`7`: {7, 9, 8}, `[7, 8, 9]`: {7, 8, 9}, `[7, 8, 9, 10]`: {7, 8, 9}} {
		dir, path := filepath.Join(t.TempDir(), "model"), filepath.Join(t.TempDir(), "model.gguf")
		config, err := hf.ParseConfig([]byte(`{"model_type":"llama","vocab_size":64,"hidden_size":64,"num_hidden_layers":1,"num_attention_heads":2,"intermediate_size":64,"rms_norm_eps":1e-5,"tie_word_embeddings":false,"max_position_embeddings":64,"torch_dtype":"float32","bos_token_id":3,"eos_token_id":` + eos + `}`))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := convert.Random(t.Context(), config, dir, 1, convert.Options{Linear: dtype.F32}); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, hf.GenerationName), []byte(`{"eos_token_id":[9, 8]}`), 0o644); err != nil {
			t.Fatal(err)
		}
		from, err := hf.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		r, err := convert.GGUF(t.Context(), from, path, "f32", convert.Options{})
		if err != nil {
			t.Fatal(err)
		}
		from.Close()
		if over := strings.Contains(strings.Join(r.Notices, " "), "[10]"); over != strings.Contains(eos, "10") {
			t.Errorf("eos %s: notices %q", eos, r.Notices)
		}
		back, err := hf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		var g struct {
			EOS hf.TokenIDs `json:"eos_token_id"`
		}
		if err := json.Unmarshal(back.Generation, &g); err != nil {
			t.Fatal(err)
		}
		got := []int{}
		for _, id := range g.EOS {
			got = append(got, int(id))
		}
		if !slices.Equal(got, want) || !slices.Equal(back.Config.EOS, want[:1]) || !slices.Equal(back.Config.BOS, []int{3}) {
			t.Errorf("eos %s: ends %v, want %v; config %v %v", eos, got, want, back.Config.BOS, back.Config.EOS)
		}
		back.Close()
	}
}

// How tokens are drawn survives a file, with the values that transformers has where a folder gives none: llama.cpp's own differ.
func TestGGUFSampling(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	for settings, want := range map[string]string{
		`{"do_sample":true,"temperature":0.6,"top_k":20,"top_p":0.95,"min_p":0.05}`: `{"do_sample":true,"min_p":0.05,"temperature":0.6,"top_k":20,"top_p":0.95}`,
		`{"do_sample":true}`: `{"do_sample":true,"min_p":0,"temperature":1,"top_k":50,"top_p":1}`,
		`{"do_sample":false,"temperature":0.6,"repetition_penalty":1.05}`: `{}`,
	} {
		dir, path := filepath.Join(t.TempDir(), "model"), filepath.Join(t.TempDir(), "model.gguf")
		if err := os.CopyFS(dir, os.DirFS("../testdata/reference/llama")); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, hf.GenerationName), []byte(settings), 0o600); err != nil {
			t.Fatal(err)
		}
		from, err := hf.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer from.Close()
		r, err := convert.GGUF(t.Context(), from, path, "f32", convert.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if lost := strings.Contains(settings, "penalty"); lost != strings.Contains(strings.Join(r.Notices, " "), "repetition_penalty 1.05") {
			t.Errorf("%s: notices %q", settings, r.Notices)
		}
		back, err := hf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer back.Close()
		var got map[string]any
		if err := json.Unmarshal(back.Generation, &got); err != nil {
			t.Fatal(err)
		}
		delete(got, "bos_token_id")
		delete(got, "eos_token_id")
		if raw, err := json.Marshal(got); err != nil || string(raw) != want {
			t.Errorf("%s: read again %s, want %s (%v)", settings, raw, want, err)
		}
	}
}

// A file has the chat template for conversations with tools too, under the names that the gguf package gives it, and the tokens that
// only the settings of a tokenizer declare.
func TestGGUFTemplatesForTools(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	dir, path := filepath.Join(t.TempDir(), "model"), filepath.Join(t.TempDir(), "model.gguf")
	config, err := hf.ParseConfig([]byte(`{"model_type":"llama","vocab_size":512,"hidden_size":32,"num_hidden_layers":1,"num_attention_heads":2,"intermediate_size":32,"rms_norm_eps":1e-5,"tie_word_embeddings":false,"max_position_embeddings":64,"torch_dtype":"float32"}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := convert.Random(t.Context(), config, dir, 1, convert.Options{Linear: dtype.F32}); err != nil {
		t.Fatal(err)
	}
	words, err := os.ReadFile("../tokenizer/testdata/tiny/llama3.json")
	if err != nil {
		t.Fatal(err)
	}
	settings := []byte(`{"pad_token": "<pad>", "chat_template": [{"name": "default", "template": "usual"}, {"name": "tool_use", "template": "tools"}]}`)
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "tokenizer.json"), words, 0o644), os.WriteFile(filepath.Join(dir, "tokenizer_config.json"), settings, 0o644)); err != nil {
		t.Fatal(err)
	}
	from, err := hf.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	if _, err := convert.GGUF(t.Context(), from, path, "f32", convert.Options{}); err != nil {
		t.Fatal(err)
	}
	file, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if m := file.Metadata; m["tokenizer.chat_template"] != "usual" || m["tokenizer.chat_template.tool_use"] != "tools" || !reflect.DeepEqual(m["tokenizer.chat_templates"], []string{"tool_use"}) {
		t.Errorf("%v, %v, %v", m["tokenizer.chat_template"], m["tokenizer.chat_template.tool_use"], m["tokenizer.chat_templates"])
	}
	if words, _ := file.Metadata["tokenizer.ggml.tokens"].([]string); len(words) < 509 || words[508] != "<pad>" {
		t.Errorf("%d tokens without the one that only tokenizer_config.json declares", len(words))
	}
	back, err := hf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer back.Close()
	template, err := chat.Open(back.Dir)
	if err != nil || template.Source != "usual" || template.WithTools == nil || template.WithTools.Source != "tools" {
		t.Errorf("%+v, %v", template, err)
	}
}

// A model that ends with no token ends with none in the file either: the 2 that transformers assumes of a Llama is not there.
func TestGGUFWithoutEnds(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	path := filepath.Join(t.TempDir(), "model.gguf")
	if err := writeGGUF(t, `"bos_token_id":null,"eos_token_id":null`, path); err != nil {
		t.Fatal(err)
	}
	back, err := hf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer back.Close()
	if len(back.Config.EOS) > 0 || len(back.Config.BOS) > 0 || back.Generation != nil {
		t.Errorf("the file begins texts with %v and ends them with %v; the model had none", back.Config.BOS, back.Config.EOS)
	}
}

// What a GGUF file cannot say of a model is refused: a program that reads the file would compute another one. What is said
// in config.json and is what such programs compute anyway is none of that.
func TestGGUFRefuses(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	for config, want := range map[string]string{
		`"hidden_act":"gelu"`: "activation is gelu",
		`"rope_scaling":{"rope_type":"yarn","factor":4.0,"original_max_position_embeddings":16,"mscale":0.7,"mscale_all_dim":1.3}`: "scaled by yarn",
		`"rope_scaling":{"rope_type":"yarn","factor":4.0,"original_max_position_embeddings":16,"truncate":false}`:                  "scaled by yarn",
		`"rope_scaling":{"rope_type":"yarn","factor":4.0,"original_max_position_embeddings":4096,"beta_fast":9}`:                   "scaled by yarn",
		`"rope_scaling":{"rope_type":"yarn","factor":4.0,"original_max_position_embeddings":16,"beta_fast":32,"beta_slow":1}`:      "",
		`"rope_scaling":{"rope_type":"llama3","factor":4.0,"low_freq_factor":1.0,"high_freq_factor":4.0}`:                          "",
		`"model_type":"qwen2","rope_scaling":{"rope_type":"llama3","factor":4.0,"low_freq_factor":1.0,"high_freq_factor":4.0}`:     "scaled by llama3",
		`"model_type":"qwen3","attention_bias":true`: "biases",
	} {
		err := writeGGUF(t, config, filepath.Join(t.TempDir(), "model.gguf"))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", config, err, want)
		}
	}
}

// writeGGUF writes a small random Llama, with some more of config.json, as a GGUF file.
func writeGGUF(t *testing.T, more, path string) error {
	t.Helper()
	text := `{"vocab_size":64,"hidden_size":64,"num_hidden_layers":1,"num_attention_heads":2,"num_key_value_heads":2,"head_dim":32,"intermediate_size":64,"max_position_embeddings":64,"torch_dtype":"float32",` + more
	if !strings.Contains(more, "model_type") {
		text += `,"model_type":"llama"`
	}
	config, err := hf.ParseConfig([]byte(text + "}"))
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "model")
	if _, err := convert.Random(t.Context(), config, dir, 1, convert.Options{Linear: dtype.F32}); err != nil {
		t.Fatal(err)
	}
	from, err := hf.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	_, err = convert.GGUF(t.Context(), from, path, "f32", convert.Options{})
	return err
}

// Wide rows take the types that llama.cpp's recipe gives them.
func TestGGUFTypes(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	dir := filepath.Join(t.TempDir(), "wide")
	config, err := hf.ParseConfig([]byte(`{"model_type":"llama","vocab_size":64,"hidden_size":256,"num_hidden_layers":8,"num_attention_heads":2,"num_key_value_heads":1,"intermediate_size":512,"rms_norm_eps":1e-5,"tie_word_embeddings":false,"max_position_embeddings":64,"torch_dtype":"float32"}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := convert.Random(t.Context(), config, dir, 1, convert.Options{Linear: dtype.F32}); err != nil {
		t.Fatal(err)
	}
	from, err := hf.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	path := filepath.Join(t.TempDir(), "wide.gguf")
	if _, err := convert.GGUF(t.Context(), from, path, "Q4_K_M", convert.Options{}); err != nil {
		t.Fatal(err)
	}
	back, err := hf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer back.Close()
	var six []string
	for _, x := range back.Tensors() {
		switch {
		case x.Type == quant.Q6_K:
			six = append(six, strings.TrimPrefix(x.Name, "model.layers."))
		case len(x.Shape) == 2 && x.Type != quant.Q4_K, len(x.Shape) == 1 && x.Type != dtype.F32:
			t.Errorf("%s is %v", x.Name, x.Type)
		}
	}
	slices.Sort(six)
	var want []string
	for _, layer := range []string{"0", "3", "6", "7"} { // the first and last eighth, and every third after the first eighth
		want = append(want, layer+".mlp.down_proj.weight", layer+".self_attn.v_proj.weight")
	}
	want = append(want, "lm_head.weight")
	if !slices.Equal(six, want) {
		t.Errorf("six bits have %v, want %v", six, want)
	}
	if _, err := convert.GGUF(t.Context(), from, path, "q8_0", convert.Options{}); err == nil || !strings.Contains(err.Error(), "exists already") {
		t.Errorf("over a file: %v", err)
	}
	if _, err := convert.GGUF(t.Context(), from, path+"x", "q9", convert.Options{}); err == nil || !strings.Contains(err.Error(), "q4_k_m") {
		t.Errorf("an unknown recipe: %v", err)
	}
}
