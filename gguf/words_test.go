package gguf_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spillway/gguf"
	"spillway/internal/vfs"
	"spillway/tokenizer"
)

// tokenizerOf writes metadata of a tokenizer to a file and opens it.
func tokenizerOf(t *testing.T, m gguf.Metadata) *tokenizer.Tokenizer {
	t.Helper()
	m["general.architecture"] = "llama"
	path := filepath.Join(t.TempDir(), "vocabulary.gguf")
	if err := gguf.Write(vfs.OS, path, m, nil); err != nil {
		t.Fatal(err)
	}
	raw, err := gguf.Tokenizer(path)
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// tokensOf are the texts of the tokens of a text.
func tokensOf(t *testing.T, tok *tokenizer.Tokenizer, vocabulary []string, text string) (list []string) {
	t.Helper()
	ids, err := tok.Encode(text, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		list = append(list, vocabulary[id])
	}
	return list
}

// Pairs are joined within words, and words end where the name of the way to split says: every
// neighbouring pair of this vocabulary could be joined.
func TestWordsOfPreTokenizers(t *testing.T) {
	letters := strings.Split("a b 1 2 3 4 . ! Ġ Ċ", " ")
	vocabulary, merges := slices.Clone(letters), []string{}
	for _, x := range letters {
		for _, y := range letters {
			vocabulary, merges = append(vocabulary, x+y), append(merges, x+" "+y)
		}
	}
	for name, want := range map[string]string{ // of "ab 1234..!\nab"
		"gpt-2":          "ab Ġ 12 34 .. ! Ċ ab",
		"smollm":         "ab Ġ 1 2 3 4 .. ! Ċ ab",
		"llama-bpe":      "ab Ġ 12 3 4 .. !Ċ ab",
		"qwen2":          "ab Ġ 1 2 3 4 .. !Ċ ab",
		"gpt-4o":         "ab Ġ 12 3 4 .. !Ċ ab",
		"falcon":         "ab Ġ 12 3 4 .. ! Ċ ab",
		"deepseek-llm":   "ab Ġ 12 34 .. ! Ċ ab",
		"deepseek-coder": "ab Ġ 1 2 3 4 .. ! Ċ ab",
		"deepseek-v3":    "ab Ġ 12 3 4 .. !Ċ ab",
	} {
		tok := tokenizerOf(t, gguf.Metadata{"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": name, "tokenizer.ggml.tokens": vocabulary, "tokenizer.ggml.merges": merges})
		if got := strings.Join(tokensOf(t, tok, vocabulary, "ab 1234..!\nab"), " "); got != want {
			t.Errorf("%s: the tokens are %q, want %q", name, got, want)
		}
	}
	m := gguf.Metadata{"general.architecture": "llama", "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "klingon", "tokenizer.ggml.tokens": vocabulary}
	path := filepath.Join(t.TempDir(), "x.gguf")
	if err := gguf.Write(vfs.OS, path, m, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := gguf.Tokenizer(path); err == nil || !strings.Contains(err.Error(), `"klingon", which is not known; known are codeshell`) {
		t.Errorf("an unknown way: %v", err)
	}
}

// BERT's vocabularies have a mark where words begin, Gemma's pairs are joined in the order of a list.
func TestOtherKindsOfVocabularies(t *testing.T) {
	words := []string{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "▁un", "aff", "able", "▁able", "▁,"}
	bert := tokenizerOf(t, gguf.Metadata{
		"tokenizer.ggml.model": "bert", "tokenizer.ggml.tokens": words, "tokenizer.ggml.token_type": []int64{3, 3, 3, 3, 1, 1, 1, 1, 1},
		"tokenizer.ggml.unknown_token_id": int64(1), "tokenizer.ggml.cls_token_id": int64(2), "tokenizer.ggml.seperator_token_id": int64(3),
	})
	if got := strings.Join(tokensOf(t, bert, words, "Unaffable, able x"), " "); got != "▁un aff able ▁, ▁able [UNK]" {
		t.Errorf("words are %q", got)
	}
	if ids, err := bert.Encode("able", true); err != nil || !slices.Equal(ids, []int32{2, 7, 3}) {
		t.Errorf("around a text: %v (%v)", ids, err)
	}
	pieces := []string{"<pad>", "<unk>", "▁", "a", "b", "ab", "▁ab", "\n", "\n\n", "<0x21>"}
	gemma := tokenizerOf(t, gguf.Metadata{
		"tokenizer.ggml.model": "gemma4", "tokenizer.ggml.tokens": pieces, "tokenizer.ggml.token_type": []int64{3, 2, 1, 1, 1, 1, 1, 1, 1, 6},
		"tokenizer.ggml.unknown_token_id": int64(1), "tokenizer.ggml.merges": []string{"\n \n", "a b", "▁ ab"}, "tokenizer.ggml.add_space_prefix": false,
	})
	if got := tokensOf(t, gemma, pieces, "ab ab\n\n!"); !slices.Equal(got, []string{"ab", "▁ab", "\n\n", "<0x21>"}) {
		t.Errorf("pieces are %q", got)
	}
}
