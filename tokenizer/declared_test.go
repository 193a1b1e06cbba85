package tokenizer

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Tokens that only the files next to tokenizer.json declare are added to it as transformers does: the ids are those of
// AutoTokenizer (5.23) for a folder with the same files. The tokenizer has 508 tokens, the model 511.
func TestDeclaredTokensAreAdded(t *testing.T) {
	file, err := os.ReadFile(filepath.Join("testdata", "tiny", "llama3.json"))
	if err != nil {
		t.Fatal(err)
	}
	const text = "Hello <a><b> x<c><e>"
	a, b, c, e := []int32{27, 64, 29}, []int32{27, 65, 29}, []int32{27, 66, 29}, []int32{27, 68, 29} // as no tokens of their own
	join := func(parts ...any) (ids []int32) {
		for _, part := range parts {
			switch part := part.(type) {
			case int:
				ids = append(ids, int32(part))
			case []int32:
				ids = append(ids, part...)
			}
		}
		return ids
	}
	for name, c := range map[string]struct {
		files map[string]string
		want  []int32
	}{
		"none": {nil, join(504, 500, 220, a, b, 220, 87, c, e)},
		"by their ids, with options": {map[string]string{settingsFile: `{"pad_token": "<b>", "added_tokens_decoder": {
			"509": {"content": "<b>", "special": true}, "508": {"content": "<a>", "lstrip": true, "special": true}}}`}, join(504, 500, 508, 509, 220, 87, c, e)},
		"by name and in a list": {map[string]string{settingsFile: `{"pad_token": "<a>", "eos_token": "<b>", "extra_special_tokens": ["<c>"], "add_bos_token": false}`}, join(504, 500, 220, 509, 508, 220, 87, 510, e)},
		"in files of old folders": {map[string]string{specialFile: `{"pad_token": {"content": "<a>", "lstrip": true}}`, addedFile: `{"<b>": 509, "<a>": 508}`},
			join(504, 500, 220, 508, 509, 220, 87, c, e)},
		"old files next to a newer one": {map[string]string{settingsFile: `{"added_tokens_decoder": {}}`, addedFile: `{"<b>": 509, "<a>": 508}`}, join(504, 500, 220, a, b, 220, 87, c, e)},
		"one that the model has":        {map[string]string{settingsFile: `{"eos_token": "Hello"}`}, join(504, 500, 220, a, b, 220, 87, c, e)},
		"special ones read as text": {map[string]string{settingsFile: `{"split_special_tokens": true, "added_tokens_decoder": {
			"509": {"content": "<b>", "special": true}, "508": {"content": "<a>", "special": false}}}`}, join(504, 500, 220, 508, b, 220, 87, c, e)},
		"more than the model has": {map[string]string{settingsFile: `{"extra_special_tokens": ["<a>", "<b>", "<c>", "<e>"]}`}, join(504, 500, 220, 508, 509, 220, 87, 510, e)},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range c.files {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(filepath.Join(dir, "tokenizer.json"), file, 0o644); err != nil {
				t.Fatal(err)
			}
			tok, err := OpenFolder(dir, 511)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := tok.Encode(text, true); err != nil || !slices.Equal(got, c.want) {
				t.Errorf("%v, %v\nwant %v", got, err, c.want)
			}
		})
	}
}

func TestDeclarationsThatCannotBeReadAreRefused(t *testing.T) {
	for name, text := range map[string]string{settingsFile: `{"added_tokens_decoder": {"x": {"content": "<a>"}}}`, addedFile: `{"<a>": "x"}`, specialFile: `[`} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenFolder(dir, 511); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The space before a text is as tokenizer_config.json says where its class makes the steps by that: ids are those of
// AutoTokenizer (5.23).
func TestDeclaredPrefixSpace(t *testing.T) {
	file, err := os.ReadFile(filepath.Join("testdata", "tiny", "bytelevel.json")) // which has one
	if err != nil {
		t.Fatal(err)
	}
	for config, want := range map[string][]int32{
		`{"tokenizer_class": "GPT2TokenizerFast", "add_prefix_space": true}`:        {1, 352, 447, 2},
		`{"tokenizer_class": "GPT2TokenizerFast", "add_prefix_space": false}`:       {1, 328, 447, 2},
		`{"tokenizer_class": "Qwen2Tokenizer", "add_prefix_space": false}`:          {1, 328, 447, 2},
		`{"tokenizer_class": "PreTrainedTokenizerFast", "add_prefix_space": false}`: {1, 352, 447, 2},
		`{"add_prefix_space": false}`:                                               {1, 352, 447, 2},
	} {
		dir := t.TempDir()
		if err := errors.Join(os.WriteFile(filepath.Join(dir, tokenizerFile), file, 0o644), os.WriteFile(filepath.Join(dir, settingsFile), []byte(config), 0o644)); err != nil {
			t.Fatal(err)
		}
		tok, err := OpenFolder(dir, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := tok.Encode("hello world", true); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v (%v)", config, got, want, err)
		}
	}
}
