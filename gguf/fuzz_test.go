package gguf_test

import (
	"encoding/binary"
	"os"
	"strings"
	"testing"

	"spillway/gguf"
	"spillway/hf"
	"spillway/internal/bounded"
	"spillway/internal/vfs"
	"spillway/tokenizer"
)

// Any bytes are read or refused, within a bounded time and memory: the tensors, the config and
// the tokenizer.
func FuzzOpen(f *testing.F) {
	for _, path := range []string{"testdata/llama.gguf", "testdata/qwen3-00003-of-00003.gguf", "testdata/qwen3-q8_0.gguf"} {
		b, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b[:min(len(b), 4096)])
		f.Add(b)
	}
	for _, kind := range []string{"llama", "gpt2", "bert", "t5"} {
		f.Add(vocabularyFile(kind, []string{"<unk>", "a", "b", "ab", "▁ab", "<s>"}, 6))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		disk := vfs.NewMemory(1 << 30)
		if err := vfs.ReplaceBytes(disk, "x.gguf", b); err != nil {
			t.Fatal(err)
		}
		bounded.Check(t, len(b), func() { readAll(t, disk, len(b)) })
	})
}

// readAll reads a file as a model is opened.
func readAll(t *testing.T, disk vfs.FS, size int) {
	if raw, err := gguf.TokenizerOn(disk, "x.gguf"); err == nil {
		if tok, err := tokenizer.Parse(raw); err == nil {
			_, _ = tok.Encode("ab a  b", true)
		}
	}
	file, err := gguf.OpenOn(disk, "x.gguf")
	if err != nil {
		return
	}
	defer file.Close()
	for _, x := range file.Tensors() {
		if x.Bytes > int64(size) {
			t.Fatalf("tensor %s has %d bytes of a file of %d", x.Name, x.Bytes, size)
		}
		if n := x.Shape.Elements(); n > 0 && x.CheckReal() == nil {
			_ = x.ReadF32(make([]float32, min(n, 300)), 0)
		}
	}
	if files, err := file.Files(); err == nil {
		_, _ = hf.ParseConfig(files["config.json"])
	}
}

// vocabularyFile is a file with a tokenizer alone, all its tokens of one type.
func vocabularyFile(kind string, tokens []string, tokenType byte) []byte {
	f := begin(0, 6).text("general.architecture").u32(8).text("llama")
	f.text("tokenizer.ggml.model").u32(8).text(kind)
	f.text("tokenizer.ggml.pre").u32(8).text("llama-bpe")
	f.text("tokenizer.ggml.tokens").u32(9).u32(8).u64(uint64(len(tokens)))
	for _, token := range tokens {
		f.text(token)
	}
	f.text("tokenizer.ggml.token_type").u32(9).u32(0).u64(uint64(len(tokens)))
	for range tokens {
		f.b = append(f.b, tokenType)
	}
	f.text("tokenizer.ggml.scores").u32(9).u32(6).u64(uint64(len(tokens)))
	for i := range tokens {
		f.b = binary.LittleEndian.AppendUint32(f.b, uint32(i))
	}
	return f.b
}

// Files that are made to take time or memory take neither.
func TestHostileVocabularies(t *testing.T) {
	many := make([]string, 300_000)
	for name, b := range map[string][]byte{
		"a long token":       vocabularyFile("llama", append(strings.Split("0123456789", ""), strings.Repeat("a", 4<<20)), 1),
		"a long control":     vocabularyFile("llama", append(strings.Split("0123456789", ""), strings.Repeat("a", 4<<20)), 4),
		"empty controls":     vocabularyFile("llama", many, 3),
		"empty user tokens":  vocabularyFile("gpt2", many, 4),
		"empty words":        vocabularyFile("bert", many, 1),
		"empty pieces":       vocabularyFile("t5", many, 1),
		"tokens of no model": vocabularyFile("rwkv", many, 1),
	} {
		t.Run(name, func(t *testing.T) {
			disk := vfs.NewMemory(1 << 30)
			if err := vfs.ReplaceBytes(disk, "x.gguf", b); err != nil {
				t.Fatal(err)
			}
			bounded.Check(t, len(b), func() { readAll(t, disk, len(b)) })
		})
	}
}
