package main

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"spillway/dtype"
	"spillway/inspect"
	"spillway/internal/vfs"
	"spillway/safetensors"
	"spillway/shape"
	"spillway/tensorfile"
)

func TestInspect(t *testing.T) {
	dir := initialized(t, "--shard-size", "500kB")
	v := command(t, "inspect", dir, "--json", "--tensors").object(t)
	// 9000·64 embedding, and three layers of q 64², o 64², k and v 32·64, MLP 3·64·96, two norms of 64; a last norm
	want := float64(9000*64 + 3*(2*64*64+2*32*64+3*64*96+2*64) + 64)
	if n := at(t, v, "model.params"); n != want {
		t.Errorf("%v params, want %v", n, want)
	}
	types := at(t, v, "types").([]any)
	if len(types) != 1 || at(t, types[0], "type") != "bf16" || at(t, types[0], "params") != want || at(t, types[0], "bytes") != 2*want {
		t.Errorf("types %v", types)
	}
	if n := len(at(t, v, "files").([]any)); n != 2 { // the embedding is larger than a shard
		t.Errorf("%d files", n)
	}
	if n := len(at(t, v, "tensors").([]any)); n != 29 {
		t.Errorf("%d tensors", n)
	}
	if p := at(t, v, "problems").([]any); len(p) != 0 {
		t.Errorf("problems %v", p)
	}
	if text := command(t, "inspect", dir).out; !strings.Contains(text, "problems        none") {
		t.Error(text)
	}
}

// folder writes a model folder of tensors by name and shape.
func folder(t *testing.T, config string, tensors map[string]shape.Shape) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	var sources []tensorfile.Output
	for name, s := range tensors {
		sources = append(sources, tensorfile.Output{Name: name, Type: dtype.F32, Shape: s, Write: func(w io.Writer) error {
			_, err := w.Write(make([]byte, 4*s.Elements()))
			return err
		}})
	}
	if err := safetensors.WriteSet(vfs.OS, dir, sources, 0); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestInspectFindsProblems(t *testing.T) {
	dir := folder(t, smallConfig, map[string]shape.Shape{
		"model.embed_tokens.weight": shape.Of(9000, 32), "model.norm.weight": shape.Of(64), "model.extra": shape.Of(3),
		"lm_head.weight": shape.Of(9000, 32), // a second copy of the tied embedding, which is fine
	})
	r := command(t, "inspect", dir, "--json")
	var v inspect.Report
	if err := json.Unmarshal([]byte(r.out), &v); err != nil {
		t.Fatal(err)
	}
	all := strings.Join(v.Problems, "\n")
	if r.code != exitFailed || len(v.Problems) != 27+2 {
		t.Errorf("exit code %d, %d problems:\n%s", r.code, len(v.Problems), all)
	}
	for _, want := range []string{
		"model.layers.2.mlp.down_proj.weight [64 96] is missing", "model.embed_tokens.weight has the shape [9000 32], the model wants [9000 64]",
		"model.extra [3] is not part of the model",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is not among\n%s", want, all)
		}
	}
	if text := command(t, "inspect", dir).out; !strings.Contains(text, "and 17 more; --json lists all") {
		t.Error(text)
	}
}

func TestInspectWhatIsNoModel(t *testing.T) {
	strange := folder(t, `{"model_type":"abacus"}`, map[string]shape.Shape{"beads": shape.Of(10)})
	r := command(t, "inspect", strange)
	if r.code != exitFailed || !strings.Contains(r.out, "abacus") || !strings.Contains(r.out, "10 params") {
		t.Errorf("exit code %d: %s", r.code, r.out)
	}
	if r := command(t, "inspect", t.TempDir()); r.code != exitFailed || !strings.Contains(r.err, "config.json") {
		t.Errorf("exit code %d: %s", r.code, r.err)
	}
}
