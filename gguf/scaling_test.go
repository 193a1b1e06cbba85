package gguf_test

import (
	"io"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"spillway/dtype"
	"spillway/gguf"
	"spillway/hf"
	"spillway/internal/vfs"
	"spillway/shape"
	"spillway/tensorfile"
)

// A file with a factor and no type of scaling scales positions linearly, as llama.cpp has it: files of 2023 say no more than
// scale_linear. Values of another type than a key has are refused, and shown.
func TestScalingOfPositions(t *testing.T) {
	yarn := gguf.Metadata{"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 4.0}
	for name, c := range map[string]struct {
		metadata gguf.Metadata
		kind     string
		factor   float64
		original int
		refused  string
	}{
		"nothing":             {kind: "default"},
		"an old key":          {metadata: gguf.Metadata{"llama.rope.scale_linear": 2.0}, kind: "linear", factor: 2},
		"an old key without":  {metadata: gguf.Metadata{"llama.rope.scale_linear": 1.0}, kind: "default"},
		"a factor alone":      {metadata: gguf.Metadata{"llama.rope.scaling.factor": 4.0}, kind: "linear", factor: 4},
		"a factor and none":   {metadata: gguf.Metadata{"llama.rope.scaling.factor": 4.0, "llama.rope.scaling.type": "none"}, kind: "default"},
		"yarn of the context": {metadata: yarn, kind: "yarn", factor: 4, original: 64},
		"a factor as a text":  {metadata: gguf.Metadata{"llama.rope.scaling.factor": "4"}, refused: `llama.rope.scaling.factor is "4", a number is needed`},
		"a type as a number":  {metadata: gguf.Metadata{"llama.rope.scaling.type": int64(2)}, refused: "llama.rope.scaling.type is 2, a text is needed"},
		"heads as a text":     {metadata: gguf.Metadata{"llama.attention.head_count": "2"}, refused: `llama.attention.head_count is "2", a number is needed`},
		"causal":              {metadata: gguf.Metadata{"llama.attention.causal": true}, kind: "default"},
		"not causal":          {metadata: gguf.Metadata{"llama.attention.causal": false}, refused: "llama.attention.causal = false, which is not understood"},
		"an adapter":          {metadata: gguf.Metadata{"general.type": "adapter"}, refused: "it is no model but an adapter of llama.cpp"},
		"a projector":         {metadata: gguf.Metadata{"general.type": "mmproj", "general.architecture": "clip"}, refused: "name the file of the model that reads text"},
		"an old projector":    {metadata: gguf.Metadata{"general.architecture": "clip"}, refused: "name the file of the model that reads text"},
		"a model":             {metadata: gguf.Metadata{"general.type": "model"}, kind: "default"},
		"experts":             {metadata: gguf.Metadata{"llama.expert_count": int64(4)}, refused: "llama.expert_count = 4, which is not understood"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("XDG_CACHE_HOME", t.TempDir())
			m := gguf.Metadata{
				"general.architecture": "llama", "llama.attention.head_count": int64(2), "llama.embedding_length": int64(8), "llama.feed_forward_length": int64(8),
				"llama.block_count": int64(1), "llama.context_length": int64(64), "llama.attention.layer_norm_rms_epsilon": 1e-5,
			}
			maps.Copy(m, c.metadata)
			path := filepath.Join(t.TempDir(), "x.gguf")
			embedding := tensorfile.Output{Name: "token_embd.weight", Type: dtype.F32, Shape: shape.Of(4, 8), Write: func(w io.Writer) error { _, err := w.Write(make([]byte, 4*4*8)); return err }}
			if err := gguf.Write(vfs.OS, path, m, []tensorfile.Output{embedding}); err != nil {
				t.Fatal(err)
			}
			f, err := hf.Open(path)
			if c.refused != "" {
				if err == nil || !strings.Contains(err.Error(), c.refused) {
					t.Errorf("%v, want %s", err, c.refused)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if r := f.Config.Rope; r.Type != c.kind || r.Factor != c.factor || r.OriginalMaxPositions != c.original {
				t.Errorf("%+v", r)
			}
		})
	}
}
