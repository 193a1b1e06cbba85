package hub

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// ollamaStore is a store with one model, of some layers by the ends of their types.
func ollamaStore(t *testing.T, name string, layers map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("OLLAMA_MODELS", dir)
	var list []layer
	for kind, text := range layers {
		sum := sha256.Sum256([]byte(text))
		digest := hex.EncodeToString(sum[:])
		list = append(list, layer{"application/vnd.ollama.image." + kind, "sha256:" + digest, int64(len(text))})
		write(t, filepath.Join(dir, "blobs", "sha256-"+digest), text)
	}
	raw, err := json.Marshal(map[string]any{"schemaVersion": 2, "layers": list})
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "manifests", filepath.FromSlash(name)), string(raw))
	return dir
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// Names of Ollama are found as it stores them; what of a model is not used is said.
func TestOllamaModelsAreFound(t *testing.T) {
	for name, manifest := range map[string]string{
		"tiny": "registry.ollama.ai/library/tiny/latest", "tiny:1b": "registry.ollama.ai/library/tiny/1b", "me/tiny:1b": "registry.ollama.ai/me/tiny/1b", "hf.co/org/tiny-GGUF:Q4_K_M": "hf.co/org/tiny-GGUF/Q4_K_M",
	} {
		ollamaStore(t, manifest, map[string]string{"model": "GGUF...", "license": "MIT", "template": "{{ .Prompt }}", "params": `{"stop": ["x"], "temperature": 0.2}`, "system": "be brief"})
		path, err := Path(OllamaPrefix + name)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(path); err != nil || string(b) != "GGUF..." {
			t.Errorf("%s is %q (%v)", name, b, err)
		}
		said := strings.Join(Notices(OllamaPrefix+name), " ")
		for _, want := range []string{"stop, temperature", "template", "--system"} {
			if !strings.Contains(said, want) {
				t.Errorf("%s: the notices are %q, want %q among them", name, said, want)
			}
		}
	}
	ollamaStore(t, "registry.ollama.ai/library/plain/latest", map[string]string{"model": "GGUF..."})
	if said := Notices("ollama:plain"); len(said) > 0 || Notices("org/tiny") != nil {
		t.Errorf("notices of nothing: %v", said)
	}
}

// What is not there, is damaged or would be another model is refused with what to do.
func TestOllamaModelsAreRefused(t *testing.T) {
	const manifest = "registry.ollama.ai/library/tiny/latest"
	for name, c := range map[string]struct {
		model  string
		layers map[string]string
		say    string
	}{
		"another":  {"big", map[string]string{"model": "x"}, "which has tiny:latest; fetch it with: ollama pull big"},
		"a path":   {"../tiny", map[string]string{"model": "x"}, "is not the name"},
		"too long": {"a/b/c/d", map[string]string{"model": "x"}, "is not the name"},
		"empty":    {"", map[string]string{"model": "x"}, "is not the name"},
		"adapter":  {"tiny", map[string]string{"model": "x", "adapter": "y"}, "adapter"},
		"tensors":  {"tiny", map[string]string{"tensor": "x"}, "no GGUF file"},
	} {
		ollamaStore(t, manifest, c.layers)
		if _, err := Path(OllamaPrefix + c.model); err == nil || !strings.Contains(err.Error(), c.say) {
			t.Errorf("%s: %v, want %q", name, err, c.say)
		}
	}
	dir := ollamaStore(t, manifest, map[string]string{"model": "GGUF..."})
	for text, say := range map[string]string{
		`{"layers": [{"mediaType": "x.model", "digest": "sha256:../../x", "size": 1}]}`:                         "which is none",
		`{"layers": [{"mediaType": "x.model", "digest": "sha256:` + strings.Repeat("0", 64) + `", "size": 1}]}`: "ollama pull",
		`{"layers": 1}`: "manifest",
		strings.Replace(string(must(os.ReadFile(filepath.Join(dir, "manifests", filepath.FromSlash(manifest))))), `"size":7`, `"size":8`, 1): "has 7 bytes, the manifest says 8",
	} {
		write(t, filepath.Join(dir, "manifests", filepath.FromSlash(manifest)), text)
		if _, err := Path("ollama:tiny"); err == nil || !strings.Contains(err.Error(), say) {
			t.Errorf("%s: %v, want %q", text, err, say)
		}
	}
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}
