package gguf

import (
	"strings"
	"testing"
)

// A file that is cut short, or is something else, says what to do next.
func TestDamagedFilesSayWhatToDo(t *testing.T) {
	const begins = "GGUF\x03\x00\x00\x00"
	for file, want := range map[string]string{
		"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n": "run git lfs pull",
		"<!DOCTYPE html><html>404": "fetch it again",
		begins:                     "the file ends at 8: it was cut short or is damaged, fetch it again",
		begins + "\x1e\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00": "30 tensors are said to be in the 8 bytes that are left of the file: it was cut short or is damaged, fetch it again",
		"GGUF\x00\x00\x00\x03": "take the little-endian file",
	} {
		_, err := readHeader(strings.NewReader(file), int64(len(file)))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", file, err, want)
		}
	}
}

// llama.cpp refuses byte-level tokens without merges; reading every byte as a token would give another text.
func TestByteLevelTokensNeedMerges(t *testing.T) {
	v := &vocabulary{m: Metadata{"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2"}, tokens: []string{"a", "b", "ab"}}
	if _, err := v.tokenizer(); err == nil || !strings.Contains(err.Error(), "lacks tokenizer.ggml.merges") {
		t.Errorf("without merges: %v", err)
	}
	v.m["tokenizer.ggml.merges"] = []string{"a b"}
	if _, err := v.tokenizer(); err != nil {
		t.Errorf("with merges: %v", err)
	}
}
