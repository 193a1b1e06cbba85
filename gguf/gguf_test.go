package gguf_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spillway/gguf"
	"spillway/hf"
	"spillway/internal/vfs"
	"spillway/tokenizer"
)

// A model written by the gguf package has the tensors of its folder, to the bit: names,
// shapes, the order of rows in heads; and the config that the folder has.
func TestTensorsAreThoseOfTheFolder(t *testing.T) {
	for name, path := range map[string]string{"llama": "testdata/llama.gguf", "qwen3": "testdata/qwen3-00001-of-00003.gguf"} {
		t.Setenv("XDG_CACHE_HOME", t.TempDir())
		want, err := hf.Open("../testdata/reference/" + name)
		if err != nil {
			t.Fatal(err)
		}
		defer want.Close()
		got, err := hf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer got.Close()
		if len(got.Tensors()) != len(want.Tensors()) {
			t.Errorf("%s: %d tensors, the folder has %d", name, len(got.Tensors()), len(want.Tensors()))
		}
		for _, w := range want.Tensors() {
			g, ok := got.Tensor(w.Name)
			if !ok || !g.Shape.Equal(w.Shape) {
				t.Fatalf("%s: tensor %s has the shape %v, want %v", name, w.Name, g.Shape, w.Shape)
			}
			x, y := make([]float32, w.Shape.Elements()), make([]float32, w.Shape.Elements())
			if err := w.ReadF32(x, 0); err != nil {
				t.Fatal(err)
			}
			if err := g.ReadF32(y, 0); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(x, y) {
				t.Errorf("%s: tensor %s has other numbers", name, w.Name)
			}
			if n := int64(len(x)); n > 7 { // also from the middle of a row
				if err := g.ReadF32(y[:n-7], 7); err != nil || !slices.Equal(x[7:], y[:n-7]) {
					t.Errorf("%s: tensor %s read from its seventh element on differs (%v)", name, w.Name, err)
				}
			}
		}
		a, b := *got.Config, *want.Config
		for what, same := range map[string]bool{
			"type": a.ModelType == b.ModelType, "rope": sameRope(a.Rope, b.Rope), "heads": a.Heads == b.Heads && a.KVHeads == b.KVHeads && a.HeadDim == b.HeadDim,
			"sizes": a.HiddenSize == b.HiddenSize && a.IntermediateSize == b.IntermediateSize && a.Layers == b.Layers && a.VocabSize == b.VocabSize,
			"rest":  float32(a.NormEps) == float32(b.NormEps) && a.Tied == b.Tied && a.AttentionBias == b.AttentionBias && a.Type == b.Type && a.MaxPositions == b.MaxPositions,
		} {
			if !same {
				t.Errorf("%s: the %s of the config is not that of the folder: %+v, %+v", name, what, a, b)
			}
		}
	}
}

func sameRope(a, b hf.Rope) bool {
	return a.Type == b.Type && float32(a.Theta) == float32(b.Theta) && a.Factor == b.Factor && a.OriginalMaxPositions == b.OriginalMaxPositions && a.LowFreqFactor == b.LowFreqFactor && a.HighFreqFactor == b.HighFreqFactor
}

// The vocabularies that llama.cpp tests its tokenizers with, with its texts and tokens.
// They are looked for in the folder that SPILLWAY_GGUF_VOCABULARIES names.
func TestVocabulariesOfLlamaCPP(t *testing.T) {
	dir := os.Getenv("SPILLWAY_GGUF_VOCABULARIES")
	if dir == "" {
		t.Skip("SPILLWAY_GGUF_VOCABULARIES does not name the folder models of llama.cpp, with ggml-vocab-*.gguf, .inp and .out")
	}
	paths, err := filepath.Glob(filepath.Join(dir, "ggml-vocab-*.gguf.inp"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no vocabularies in %s (%v)", dir, err)
	}
	for _, inputs := range paths {
		path := strings.TrimSuffix(inputs, ".inp")
		t.Run(filepath.Base(path), func(t *testing.T) {
			raw, err := gguf.Tokenizer(path)
			if err != nil {
				t.Fatal(err)
			}
			tok, err := tokenizer.Parse(raw)
			if err != nil {
				t.Fatal(err)
			}
			in, err := os.ReadFile(inputs)
			if err != nil {
				t.Fatal(err)
			}
			out, err := os.ReadFile(path + ".out")
			if err != nil {
				t.Fatal(err)
			}
			texts, lines := strings.Split(string(in), "\n__ggml_vocab_test__\n"), strings.Split(strings.TrimRight(string(out), "\n"), "\n")
			again := tok
			if _, err := gguf.TokenizerMetadata(raw, tok.VocabSize()); err == nil || !strings.Contains(err.Error(), "WordPiece") { // which no model has that is written
				again = written(t, raw, tok.VocabSize())
			}
			wrong := 0
			for i, text := range texts {
				if i >= len(lines) {
					break
				}
				ids, err := tok.Encode(text, false)
				if err != nil {
					t.Fatal(err)
				}
				if same, err := again.Encode(text, true); err != nil || !slices.Equal(same, full(t, tok, text)) {
					t.Errorf("text %d, %q: written and read again it has the tokens %v (%v)", i, text, same, err)
				}
				got := strings.Trim(fmt.Sprint(ids), "[]")
				if got != strings.TrimSpace(lines[i]) {
					if wrong++; wrong < 4 {
						t.Errorf("text %d, %q: tokens %s, llama.cpp has %s", i, text, got, lines[i])
					}
				}
			}
			if wrong > 0 {
				t.Errorf("%d of %d texts differ", wrong, len(texts))
			}
		})
	}
}

func full(t *testing.T, tok *tokenizer.Tokenizer, text string) []int32 {
	t.Helper()
	ids, err := tok.Encode(text, true)
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// written is a tokenizer after it was written to a GGUF file and read from it.
func written(t *testing.T, raw []byte, vocab int) *tokenizer.Tokenizer {
	t.Helper()
	m, err := gguf.TokenizerMetadata(raw, vocab)
	if err != nil {
		t.Fatal(err)
	}
	m["general.architecture"] = "llama"
	path := filepath.Join(t.TempDir(), "vocabulary.gguf")
	if err := gguf.Write(vfs.OS, path, m, nil); err != nil {
		t.Fatal(err)
	}
	if raw, err = gguf.Tokenizer(path); err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// The tokenizer of a model survives being written to a GGUF file.
func TestTokenizersAreWritten(t *testing.T) {
	for _, name := range []string{"llama2.json", "llama3.json", "qwen2.json"} {
		raw, err := os.ReadFile("../tokenizer/testdata/tiny/" + name)
		if err != nil {
			t.Fatal(err)
		}
		tok, err := tokenizer.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		again := written(t, raw, tok.VocabSize())
		for _, text := range []string{"hello world", "a b  c", "x1234y", "the cat's hat", "ünïcode 🙂 line\nline"} {
			if a, b := full(t, tok, text), full(t, again, text); !slices.Equal(a, b) {
				t.Errorf("%s, %q: tokens %v, were %v", name, text, b, a)
			}
		}
	}
	for name, say := range map[string]string{"wordpiece.json": "WordPiece", "unigram.json": "Unigram", "clip.json": "has no name", "bytelevel.json": "ByteLevel"} {
		raw, err := os.ReadFile("../tokenizer/testdata/tiny/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := gguf.TokenizerMetadata(raw, 1<<16); err == nil || !strings.Contains(err.Error(), say) {
			t.Errorf("%s: %v, want an error with %q", name, err, say)
		}
	}
}

// malformed changes a file that is right, or writes one.
func malformed(t *testing.T, change func(b []byte) []byte) error {
	t.Helper()
	b, err := os.ReadFile("testdata/llama.gguf")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "x.gguf")
	if err := os.WriteFile(path, change(b), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Open(path)
	if err == nil {
		f.Close()
	}
	return err
}

// file writes a header by hand.
type file struct{ b []byte }

func (f *file) u32(v uint32) *file  { f.b = binary.LittleEndian.AppendUint32(f.b, v); return f }
func (f *file) u64(v uint64) *file  { f.b = binary.LittleEndian.AppendUint64(f.b, v); return f }
func (f *file) text(s string) *file { f.u64(uint64(len(s))); f.b = append(f.b, s...); return f }

func begin(tensors, keys uint64) *file {
	f := &file{b: []byte("GGUF")}
	return f.u32(3).u64(tensors).u64(keys)
}

// Every malformed file that llama.cpp's reader is tested with is an error, not a crash, and
// not taken for a model.
func TestMalformedFilesAreRefused(t *testing.T) {
	arch := func(f *file) *file { return f.text("general.architecture").u32(8).text("llama") }
	heads := func(f *file) *file { return arch(f).text("llama.attention.head_count").u32(4).u32(4) }
	tensor := func(f *file, name string, dims []uint64, kind uint32, offset uint64) *file {
		f.text(name).u32(uint32(len(dims)))
		for _, d := range dims {
			f.u64(d)
		}
		return f.u32(kind).u64(offset)
	}
	pad := func(f *file, n int) []byte { return append(f.b, make([]byte, n)...) }
	for name, c := range map[string]struct {
		make func(b []byte) []byte
		say  string
	}{
		"empty":             {func([]byte) []byte { return nil }, "too few"},
		"magic":             {func(b []byte) []byte { b[0] = 'g'; return b }, "begins with"},
		"version 0":         {func(b []byte) []byte { b[4] = 0; return b }, "version 0"},
		"version 1":         {func(b []byte) []byte { b[4] = 1; return b }, "version 1"},
		"future version":    {func(b []byte) []byte { b[4] = 9; return b }, "version 9"},
		"big-endian":        {func(b []byte) []byte { b[4], b[7] = 0, 3; return b }, "big-endian"},
		"count of tensors":  {func(b []byte) []byte { binary.LittleEndian.PutUint64(b[8:], 1<<62); return b }, "left of the file"},
		"count of keys":     {func(b []byte) []byte { binary.LittleEndian.PutUint64(b[16:], 1<<62); return b }, "left of the file"},
		"cut":               {func(b []byte) []byte { return b[:len(b)/2] }, "it was cut short, fetch it again"},
		"cut in the header": {func(b []byte) []byte { return b[:100] }, ""},
		"empty key":         {func([]byte) []byte { return pad(begin(0, 1).text("").u32(4).u32(1), 64) }, "empty key"},
		"long key":          {func([]byte) []byte { return pad(begin(0, 1).u64(1<<40), 64) }, "left of the file"},
		"type of a value":   {func([]byte) []byte { return pad(begin(0, 1).text("k").u32(77), 64) }, "type 77"},
		"array of arrays":   {func([]byte) []byte { return pad(begin(0, 1).text("k").u32(9).u32(9).u64(1), 64) }, "array of type 9"},
		"long array":        {func([]byte) []byte { return pad(begin(0, 1).text("k").u32(9).u32(10).u64(1<<40), 64) }, "left of the file"},
		"key twice":         {func([]byte) []byte { return pad(arch(arch(begin(0, 2))), 64) }, "twice"},
		"alignment 0":       {func([]byte) []byte { return pad(begin(0, 1).text("general.alignment").u32(4).u32(0), 64) }, "power of two"},
		"alignment 3":       {func([]byte) []byte { return pad(begin(0, 1).text("general.alignment").u32(4).u32(3), 64) }, "power of two"},
		"alignment as text": {func([]byte) []byte { return pad(begin(0, 1).text("general.alignment").u32(8).text("32"), 64) }, "power of two"},
		"no architecture":   {func([]byte) []byte { return pad(begin(0, 0), 64) }, "architecture"},
		"unknown key": {func([]byte) []byte {
			return pad(heads(begin(0, 3)).text("llama.attn_logit_softcapping").u32(6).u32(math.Float32bits(30)), 64)
		}, "not understood"},
		"name of a tensor": {func([]byte) []byte {
			return pad(tensor(heads(begin(1, 2)), strings.Repeat("x", 64), []uint64{1}, 0, 0), 64)
		}, "64 bytes"},
		"unknown tensor": {func([]byte) []byte { return pad(tensor(heads(begin(1, 2)), "what.weight", []uint64{1}, 0, 0), 99) }, "does not have"},
		"dimensions": {func([]byte) []byte {
			return pad(tensor(heads(begin(1, 2)), "output.weight", []uint64{1, 1, 1, 1, 1}, 0, 0), 64)
		}, "5 dimensions"},
		"negative shape": {func([]byte) []byte {
			return pad(tensor(heads(begin(1, 2)), "output.weight", []uint64{1 << 63}, 0, 0), 64)
		}, ""},
		"elements overflow": {func([]byte) []byte {
			return pad(tensor(heads(begin(1, 2)), "output.weight", []uint64{1 << 40, 1 << 40}, 0, 0), 64)
		}, ""},
		"bytes overflow": {func([]byte) []byte {
			return pad(tensor(heads(begin(1, 2)), "output.weight", []uint64{1 << 61}, 0, 0), 64)
		}, ""},
		"type of a tensor": {func([]byte) []byte { return pad(tensor(heads(begin(1, 2)), "output.weight", []uint64{1}, 36, 0), 64) }, "number 36"},
		"a type not read": {func([]byte) []byte {
			return pad(tensor(heads(begin(1, 2)), "output.weight", []uint64{256}, 16, 0), 999)
		}, "IQ2_XXS"},
		"half a block":   {func([]byte) []byte { return pad(tensor(heads(begin(1, 2)), "output.weight", []uint64{48}, 8, 0), 99) }, "whole blocks"},
		"offset":         {func([]byte) []byte { return pad(tensor(heads(begin(1, 2)), "output.weight", []uint64{4}, 0, 32), 99) }, "is at 32"},
		"offset between": {func([]byte) []byte { return pad(tensor(heads(begin(1, 2)), "output.weight", []uint64{4}, 0, 7), 99) }, "is at 7"},
		"other alignment": {func([]byte) []byte {
			f := heads(begin(2, 3)).text("general.alignment").u32(4).u32(64)
			return pad(tensor(tensor(f, "output.weight", []uint64{4}, 0, 0), "output_norm.weight", []uint64{4}, 0, 32), 299)
		}, "is at 32"},
		"long name": {func([]byte) []byte {
			return pad(tensor(heads(begin(1, 2)), strings.Repeat("x", 64), []uint64{4}, 0, 0), 99)
		}, "at most 63"},
		"tensor twice": {func([]byte) []byte {
			return pad(tensor(tensor(heads(begin(2, 2)), "output.weight", []uint64{4}, 0, 0), "output.weight", []uint64{4}, 0, 32), 199)
		}, "twice"},
		"data beyond the end": {func([]byte) []byte { return pad(tensor(heads(begin(1, 2)), "output.weight", []uint64{4000}, 0, 0), 99) }, "it was cut short, fetch it again"},
	} {
		err := malformed(t, c.make)
		if err == nil || !strings.Contains(err.Error(), c.say) {
			t.Errorf("%s: %v, want an error with %q", name, err, c.say)
		}
	}
}

// A dimension of 0 is allowed, as llama.cpp allows it: such a tensor has no bytes.
func TestEmptyTensorsAreRead(t *testing.T) {
	f := begin(1, 2).text("general.architecture").u32(8).text("llama").text("llama.attention.head_count").u32(4).u32(4)
	f.text("output.weight").u32(2).u64(0).u64(4).u32(0).u64(0)
	path := filepath.Join(t.TempDir(), "x.gguf")
	if err := os.WriteFile(path, append(f.b, make([]byte, 64)...), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if x, ok := file.Tensor("lm_head.weight"); !ok || x.Bytes != 0 {
		t.Errorf("the tensor has %d bytes", x.Bytes)
	}
}

// A split model is opened by its first part; a part that is missing or another one is said.
func TestSplitModels(t *testing.T) {
	if _, err := gguf.Open("testdata/qwen3-00002-of-00003.gguf"); err == nil || !strings.Contains(err.Error(), "qwen3-00001-of-00003.gguf") {
		t.Errorf("the second part gave %v", err)
	}
	dir := t.TempDir()
	for _, name := range []string{"qwen3-00001-of-00003.gguf", "qwen3-00002-of-00003.gguf"} {
		b, err := os.ReadFile("testdata/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := gguf.Open(filepath.Join(dir, "qwen3-00001-of-00003.gguf")); err == nil || !strings.Contains(err.Error(), "qwen3-00003-of-00003.gguf") {
		t.Errorf("without its third part: %v", err)
	}
}

// Where the user's cache cannot be written, as in containers whose home is missing, the small files are temporary ones.
func TestFilesWithoutACacheOfTheUser(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	temporary := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", filepath.Join(file, "cache"))
	t.Setenv("HOME", filepath.Join(file, "home"))
	t.Setenv("LocalAppData", filepath.Join(file, "local"))
	t.Setenv("TMPDIR", temporary)
	t.Setenv("TMP", temporary)
	for range 2 { // the second time they are there
		f, err := hf.Open("testdata/llama.gguf")
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(f.Dir, temporary) {
			t.Errorf("the files are in %s, not among temporary ones", f.Dir)
		}
		if raw, err := os.ReadFile(filepath.Join(f.Dir, hf.ConfigName)); err != nil || !strings.Contains(string(raw), `"model_type":"llama"`) && !strings.Contains(string(raw), `"model_type": "llama"`) {
			t.Errorf("the config is not that of the file: %s (%v)", raw, err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("TMPDIR", file)
	t.Setenv("TMP", file)
	if _, err := hf.Open("testdata/llama.gguf"); err == nil || !strings.Contains(err.Error(), "XDG_CACHE_HOME or TMPDIR") {
		t.Errorf("without any place: %v", err)
	}
}
