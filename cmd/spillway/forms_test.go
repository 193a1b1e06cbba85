package main

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"spillway/hf"
	"spillway/safetensors"
)

// Every command that reads a model takes it in every form, or refuses it with a reason. Forms
// that hold the same numbers continue tokens alike.
func TestCommandsTakeEveryForm(t *testing.T) {
	forms(t)
	if err := os.WriteFile("tokens.bin", []byte(strings.Repeat("\x05\x00\x11\x00\x07\x00", 100)), 0o644); err != nil {
		t.Fatal(err)
	}
	var want []int32
	for _, form := range []struct {
		name, model string
		packed      bool // other numbers, which quantize refuses
	}{
		{"folder", "folder", false}, {"split GGUF", "qwen3-00001-of-00003.gguf", false}, {"shards of .bin", "sharded", false}, {"folder with a .pt", "pt", false}, {".pt", "pt/model.pt", false}, {".safetensors", "folder/model.safetensors", false},
		{"name of the hub", "org/tiny", false}, {"name of Ollama", "ollama:tiny:q8", true}, {"GGUF", "qwen3-q8_0.gguf", true},
		{"nf4", "nf4", true}, {"fp4", "fp4", true}, {"int8", "int8", true}, {"fp8", "fp8", true},
	} {
		t.Run(form.name, func(t *testing.T) {
			out := func(name string) string { return filepath.Join(hex.EncodeToString([]byte(form.name)), name) }
			works(t, "inspect", form.model)
			works(t, "plan", form.model, "--task", "infer", "--machine", "rtx4090", "--seq-len", "8")
			works(t, "eval", form.model, "--device", "cpu", "--data", "tokens.bin", "--token-bytes", "2", "--seq-len", "8")
			v := generatedObject(t, "generate", form.model, "--device", "cpu", "--tokens", "5,17,7", "--max-new-tokens", "8")
			if want == nil {
				want = v.Tokens
			}
			if !form.packed && !slices.Equal(v.Tokens, want) {
				t.Errorf("the tokens go on with %v, those of the folder with %v", v.Tokens, want)
			}
			if v.Predicted != v.Measured {
				t.Errorf("predicted %d bytes, measured %d", v.Predicted, v.Measured)
			}
			for _, method := range []string{"lora", "qlora"} {
				works(t, "train", form.model, "--device", "cpu", "--method", method, "--data", "tokens.bin", "--token-bytes", "2", "--seq-len", "8", "--max-steps", "1", "--out", out(method))
			}
			works(t, "generate", form.model, "--adapter", out("qlora"), "--device", "cpu", "--tokens", "5,17,7", "--max-new-tokens", "1")
			works(t, "merge", form.model, out("lora"), out("merged"))
			works(t, "export", form.model, out("plain"))
			works(t, "export", form.model, out("x.gguf"), "--gguf-type", "q4_0")
			works(t, "inspect", out("x.gguf"))
			r := command(t, "quantize", form.model, out("quantized"), "--format", "int8")
			if form.packed && (r.code == exitOK || !strings.Contains(r.err, "quantized already")) || !form.packed && r.code != exitOK {
				t.Errorf("quantize: exit code %d, %s", r.code, r.err)
			}
			if r := command(t, "chat", form.model, "--device", "cpu"); r.code == exitOK || !strings.Contains(r.err, "--chat-template") {
				t.Errorf("chat: exit code %d, %s", r.code, r.err)
			}
		})
	}
	if r := command(t, "inspect", "ollama:tiny:q8"); !strings.Contains(r.out, "not used: its parameters temperature") {
		t.Errorf("what is not used of Ollama's settings is not said: %s", r.out)
	}
	for name, say := range map[string]string{"alone.pt": "config.json next to it", "ollama:other": "ollama:other: it is not in Ollama's store", "qwen3-00002-of-00003.gguf": "00001"} {
		if r := command(t, "generate", name, "--tokens", "5", "--max-new-tokens", "1"); r.code == exitOK || !strings.Contains(r.err, say) {
			t.Errorf("%s: exit code %d, %s, want %q", name, r.code, r.err, say)
		}
	}
}

// forms makes one small model in every form, in an empty folder that is the working folder until the test ends.
func forms(t *testing.T) {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Chdir(t.TempDir())
	copied := func(from, to string) {
		b, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(from)))
		if err != nil {
			t.Fatal(err)
		}
		writeIn(t, to, b)
	}
	const config, weights = "testdata/reference/qwen3/config.json", "testdata/reference/qwen3/model.safetensors"
	snapshot := "hub/models--org--tiny/snapshots/" + hubCommit
	for _, dir := range []string{"folder", snapshot} {
		copied(config, dir+"/config.json")
		copied(weights, dir+"/model.safetensors")
	}
	writeIn(t, "hub/models--org--tiny/refs/main", []byte(hubCommit))
	hub, err := filepath.Abs("hub")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("HF_HUB_CACHE", hub)
	for _, dir := range []string{"sharded", "pt"} {
		copied(config, dir+"/config.json")
	}
	for _, name := range []string{"pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin", "pytorch_model.bin.index.json"} {
		copied("pickle/testdata/sharded/"+name, "sharded/"+name)
	}
	for _, name := range []string{"qwen3-q8_0.gguf", "qwen3-00001-of-00003.gguf", "qwen3-00002-of-00003.gguf", "qwen3-00003-of-00003.gguf"} {
		copied("gguf/testdata/"+name, name)
	}
	b := torchFile(t, "folder/model.safetensors")
	writeIn(t, "pt/model.pt", b)
	writeIn(t, "alone.pt", b)
	ollama(t, "qwen3-q8_0.gguf")
	for _, format := range []string{"nf4", "fp4", "int8", "fp8"} {
		works(t, "quantize", "folder", format, "--format", format)
	}
}

func writeIn(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

// ollama has programs find a store of Ollama with a file as the model tiny:q8.
func ollama(t *testing.T, model string) {
	t.Helper()
	b, err := os.ReadFile(model)
	if err != nil {
		t.Fatal(err)
	}
	var layers []string
	for kind, text := range map[string][]byte{"model": b, "params": []byte(`{"temperature": 0.5}`)} {
		sum := sha256.Sum256(text)
		writeIn(t, "ollama/blobs/sha256-"+hex.EncodeToString(sum[:]), text)
		layers = append(layers, fmt.Sprintf(`{"mediaType": "application/vnd.ollama.image.%s", "digest": "sha256:%x", "size": %d}`, kind, sum, len(text)))
	}
	writeIn(t, "ollama/manifests/registry.ollama.ai/library/tiny/q8", []byte(`{"layers": [`+strings.Join(layers, ",")+`]}`))
	dir, err := filepath.Abs("ollama")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("OLLAMA_MODELS", dir)
}

// torchFile is what torch.save writes of the tensors of a safetensors file, all of them f32.
func torchFile(t *testing.T, path string) []byte {
	t.Helper()
	f, err := safetensors.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	put := func(name string, b []byte) {
		w, err := z.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Store})
		if err == nil {
			_, err = w.Write(b)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var p bytes.Buffer
	text := func(s string) {
		p.WriteString("X")
		binary.Write(&p, binary.LittleEndian, uint32(len(s)))
		p.WriteString(s)
	}
	number := func(n int64) { p.WriteString("J"); binary.Write(&p, binary.LittleEndian, int32(n)) }
	p.WriteString("\x80\x02}")
	for i, x := range f.Tensors() {
		raw := make([]byte, x.Bytes)
		if _, err := x.Data.ReadAt(raw, x.Offset); err != nil {
			t.Fatal(err)
		}
		put(fmt.Sprintf("m/data/%d", i), raw)
		text(x.Name)
		p.WriteString("ctorch._utils\n_rebuild_tensor_v2\n((")
		text("storage")
		p.WriteString("ctorch\nFloatStorage\n")
		text(fmt.Sprint(i))
		text("cpu")
		number(x.Shape.Elements())
		p.WriteString("tQK\x00(")
		for _, d := range x.Shape {
			number(d)
		}
		p.WriteString("t(")
		for j := range x.Shape {
			number(x.Shape[j+1:].Elements())
		}
		p.WriteString("t\x89ccollections\nOrderedDict\n)RtRs")
	}
	p.WriteString(".")
	put("m/data.pkl", p.Bytes())
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// An adapter names its model as the user did, so that it is found again, from other folders too, and by other programs.
func TestAdaptersKnowTheirModel(t *testing.T) {
	forms(t)
	writeIn(t, "tokens.bin", []byte(strings.Repeat("\x05\x00\x11\x00\x07\x00", 100)))
	writeIn(t, "hub/models--org--tiny/refs/v2", []byte(hubCommit))
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := t.TempDir()
	for i, c := range []struct{ model, base, revision string }{
		{"folder", "folder", ""}, {"qwen3-q8_0.gguf", "qwen3-q8_0.gguf", ""}, {"qwen3-00001-of-00003.gguf", "qwen3-00001-of-00003.gguf", ""},
		{"ollama:tiny:q8", "ollama:tiny:q8", ""}, {"org/tiny", "org/tiny", ""}, {"org/tiny@v2", "org/tiny", "v2"}, {"sharded", "sharded", ""}, {"pt/model.pt", "pt/model.pt", ""}, {"nf4", "nf4", ""},
	} {
		run := fmt.Sprintf("run%d", i)
		works(t, "train", c.model, "--device", "cpu", "--data", "tokens.bin", "--token-bytes", "2", "--method", "lora", "--lora-rank", "2", "--seq-len", "8", "--max-steps", "1", "--out", run)
		b, err := os.ReadFile(filepath.Join(run, "step-00000001", hf.AdapterConfigName))
		if err != nil {
			t.Fatal(err)
		}
		var config struct {
			Base     string  `json:"base_model_name_or_path"`
			Revision *string `json:"revision"`
		}
		if err := json.Unmarshal(b, &config); err != nil {
			t.Fatal(err)
		}
		if config.Base != c.base || (config.Revision != nil) != (c.revision != "") || c.revision != "" && *config.Revision != c.revision {
			t.Errorf("the adapter of %s is for %s", c.model, b)
		}
		adapter := "adapter" + run
		works(t, "export", run, adapter)
		use := []string{"--device", "cpu", "--tokens", "5,17", "--max-new-tokens", "3", "--temperature", "0", "--json"}
		want := at(t, command(t, append([]string{"generate", c.model, "--adapter", adapter}, use...)...).object(t), "tokens")
		for from, name := range map[string]string{here: run, elsewhere: filepath.Join(here, run)} {
			t.Chdir(from)
			r := command(t, append([]string{"generate", name}, use...)...)
			if r.code != exitOK {
				t.Errorf("the run of %s from %s: %s", c.model, from, r.err)
			} else if got := at(t, r.object(t), "tokens"); !reflect.DeepEqual(got, want) {
				t.Errorf("the run of %s from %s: tokens %v, with --adapter %v", c.model, from, got, want)
			}
		}
		t.Chdir(here)
		if r := command(t, append([]string{"generate", adapter}, use...)...); r.code != exitOK {
			t.Errorf("the exported adapter of %s: %s", c.model, r.err)
		}
	}
	if err := os.Rename("hub/models--org--tiny", "hub/gone"); err != nil {
		t.Fatal(err)
	}
	if r := command(t, "generate", "adapterrun4", "--tokens", "1,2"); r.code != exitFailed || !strings.Contains(r.err, "spillway pull org/tiny") {
		t.Errorf("without its model: %d, %s", r.code, r.err)
	}
}
