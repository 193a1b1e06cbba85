package gguf_test

import (
	"encoding/json"
	"io"
	"maps"
	"path/filepath"
	"reflect"
	"testing"

	"spillway/dtype"
	"spillway/gguf"
	"spillway/hf"
	"spillway/internal/vfs"
	"spillway/shape"
	"spillway/tensorfile"
)

// The tokens that end a text are those that llama.cpp prints as EOG for such files: an id of the metadata and tokens known by their
// names. How tokens are drawn is what its converter writes; settings that are not transformers' keep their names.
func TestEndsAndSamplingOfFiles(t *testing.T) {
	tokens := []string{"a", "<|endoftext|>", "<|im_end|>", "b", "<|fim_pad|>", "<|other|>"}
	for name, c := range map[string]struct {
		metadata gguf.Metadata
		want     string
	}{
		"one id":   {gguf.Metadata{"tokenizer.ggml.eos_token_id": int64(2)}, `{"eos_token_id": [2, 1, 4]}`},
		"no id":    {gguf.Metadata{}, `{"eos_token_id": [1, 2, 4]}`},
		"all ids":  {gguf.Metadata{"tokenizer.ggml.eos_token_id": int64(5), "tokenizer.ggml.eot_token_id": int64(2), "tokenizer.ggml.eom_token_id": int64(3)}, `{"eos_token_id": [5, 2, 3, 1, 4]}`},
		"no names": {gguf.Metadata{"tokenizer.ggml.eos_token_id": int64(3), "tokenizer.ggml.tokens": []string{"a", "b", "c", "d", "e", "f"}}, `{"eos_token_id": [3]}`},
		"sampling": {gguf.Metadata{"tokenizer.ggml.tokens": []string{"a", "b", "c", "d", "e", "f"}, "general.sampling.temp": 0.6, "general.sampling.top_k": int64(20), "general.sampling.top_p": 0.95},
			`{"do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.95}`},
		"others": {gguf.Metadata{"tokenizer.ggml.tokens": []string{"a", "b", "c", "d", "e", "f"}, "general.sampling.penalty_repeat": 1.1}, `{"penalty_repeat": 1.1}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("XDG_CACHE_HOME", t.TempDir())
			m := gguf.Metadata{
				"general.architecture": "llama", "llama.attention.head_count": int64(2), "llama.embedding_length": int64(8), "llama.feed_forward_length": int64(8),
				"llama.block_count": int64(1), "llama.context_length": int64(64), "llama.attention.layer_norm_rms_epsilon": 1e-5,
				"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "qwen2", "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.merges": []string{},
			}
			maps.Copy(m, c.metadata)
			path := filepath.Join(t.TempDir(), "x.gguf")
			embedding := tensorfile.Output{Name: "token_embd.weight", Type: dtype.F32, Shape: shape.Of(6, 8), Write: func(w io.Writer) error { _, err := w.Write(make([]byte, 4*6*8)); return err }}
			if err := gguf.Write(vfs.OS, path, m, []tensorfile.Output{embedding}); err != nil {
				t.Fatal(err)
			}
			f, err := hf.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			var got, want map[string]any
			if err := json.Unmarshal(f.Generation, &got); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal([]byte(c.want), &want); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s, want %s", f.Generation, c.want)
			}
		})
	}
}
