package inspect

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"spillway/dtype"
	"spillway/hf"
	"spillway/internal/vfs"
	"spillway/safetensors"
	"spillway/tensorfile"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// retyped copies a fixture with one weight in another type of as many bytes each.
func retyped(t *testing.T, weight string, to dtype.Type, config func(string) string) string {
	t.Helper()
	from, err := hf.Open("../testdata/reference/llama")
	must(t, err)
	defer from.Close()
	text, err := os.ReadFile(filepath.Join(from.Dir, hf.ConfigName))
	must(t, err)
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, hf.ConfigName), []byte(config(string(text))), 0o600))
	var outputs []tensorfile.Output
	for _, x := range from.Tensors() {
		out := tensorfile.Output{Name: x.Name, Type: x.Type, Shape: x.Shape}
		if x.Name == weight {
			out.Type = to
		}
		n, err := out.Bytes()
		must(t, err)
		out.Write = func(w io.Writer) error { _, err := w.Write(make([]byte, n)); return err }
		outputs = append(outputs, out)
	}
	must(t, safetensors.WriteFile(vfs.OS, filepath.Join(dir, safetensors.SingleName), outputs))
	return dir
}

// What training refuses, inspect lists: codes without scales, activations that would have to
// be quantized, and keys of config.json that are not known.
func TestProblemsOfModels(t *testing.T) {
	same := func(s string) string { return s }
	with := func(key string) func(string) string {
		return func(s string) string { return strings.Replace(s, "{", "{"+key+",", 1) }
	}
	const weight = "model.layers.0.self_attn.q_proj.weight"
	for want, dir := range map[string]string{
		"type i8":           retyped(t, weight, dtype.I8, same),
		"type f8e4m3":       retyped(t, weight, dtype.F8E4M3, same),
		"input_activations": retyped(t, "", dtype.F32, with(`"quantization_config": {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"targets": ["Linear"], "input_activations": {"num_bits": 8, "dynamic": true}}}}`)),
		"kv_cache_scheme":   retyped(t, "", dtype.F32, with(`"quantization_config": {"quant_method": "compressed-tensors", "kv_cache_scheme": {"num_bits": 8}}`)),
		"clip_qkv":          retyped(t, "", dtype.F32, with(`"clip_qkv": 1.0`)),
	} {
		r, err := Folder(dir, Options{})
		must(t, err)
		if !strings.Contains(strings.Join(r.Problems, "\n"), want) {
			t.Errorf("problems %q do not say %s", r.Problems, want)
		}
	}
	r, err := Folder(retyped(t, "", dtype.F32, same), Options{})
	if must(t, err); len(r.Problems) > 0 {
		t.Errorf("problems of a good folder: %q", r.Problems)
	}
}

// An adapter whose file lacks a part is seen, by itself or by comparing it with its base.
func TestProblemsOfAdapters(t *testing.T) {
	base, err := filepath.Abs("../testdata/reference/llama")
	must(t, err)
	const a, b = "base_model.model.model.layers.%.self_attn.q_proj.lora_A.weight", "base_model.model.model.layers.%.self_attn.q_proj.lora_B.weight"
	write := func(config string, shapes map[string][]int64) string {
		dir := t.TempDir()
		config = `{"peft_type": "LORA", "r": 2, "target_modules": ["q_proj"], "base_model_name_or_path": "` + base + `"` + config + `}`
		must(t, os.WriteFile(filepath.Join(dir, hf.AdapterConfigName), []byte(config), 0o600))
		var outputs []tensorfile.Output
		for name, s := range shapes {
			for i, layer := range []string{"0", "1"} {
				if i == 1 && strings.HasPrefix(name, "one ") {
					break
				}
				outputs = append(outputs, tensorfile.Output{Name: strings.ReplaceAll(strings.TrimPrefix(name, "one "), "%", layer), Type: dtype.F32, Shape: s,
					Write: func(w io.Writer) error { _, err := w.Write(make([]byte, 4*s[0]*s[1])); return err }})
			}
		}
		must(t, safetensors.WriteFile(vfs.OS, filepath.Join(dir, hf.AdapterWeightsName), outputs))
		return dir
	}
	for _, c := range []struct{ want, dir string }{
		{"", write("", map[string][]int64{a: {2, 48}, b: {48, 2}})},
		{"incomplete", write("", map[string][]int64{a: {2, 48}, "one " + b: {48, 2}})},
		{"its rank is 2", write("", map[string][]int64{a: {3, 48}, b: {48, 3}})},
		{"lacks", write("", map[string][]int64{"one " + a: {2, 48}, "one " + b: {48, 2}})},
		{"lora_magnitude_vector", write(`, "use_dora": true`, map[string][]int64{a: {2, 48}, b: {48, 2}})},
		{"the model wants", write("", map[string][]int64{a: {2, 40}, b: {48, 2}})},
		{"use_mystery", write(`, "use_mystery": true`, map[string][]int64{a: {2, 48}, b: {48, 2}})},
	} {
		r, err := Folder(c.dir, Options{})
		must(t, err)
		if all := strings.Join(r.Problems, "\n"); (c.want == "") != (all == "") || !strings.Contains(all, c.want) {
			t.Errorf("problems %q, want %q", r.Problems, c.want)
		}
	}
}
