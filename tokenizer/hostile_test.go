package tokenizer

import (
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// file wraps a model, and further fields, as a tokenizer.json.
func file(model string, fields ...string) string {
	return `{"model": ` + model + strings.Join(append([]string{""}, fields...), ", ") + `}`
}

const (
	smallBPE     = `{"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}`
	smallUnigram = `{"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0], ["a", -1]]}`
)

func TestBadFilesAreRefused(t *testing.T) {
	deep := strings.Repeat(`{"type": "Sequence", "normalizers": [`, 200) + strings.Repeat(`]}`, 200)
	for _, bad := range []struct{ what, file, reason string }{
		{"nothing", ``, "parse tokenizer"},
		{"not UTF-8", file("{\"type\": \"BPE\", \"vocab\": {\"\xff\": 0}, \"merges\": []}"), "UTF-8"},
		{"no object", `[]`, "parse tokenizer"},
		{"cut short", file(smallBPE)[:60], "parse tokenizer"},
		{"no model", `{}`, "none"},
		{"null model", `{"model": null}`, "none"},
		{"unknown model", file(`{"type": "WordLevel", "vocab": {}}`), "not supported"},
		{"vocab of another kind", file(`{"type": "BPE", "vocab": [], "merges": []}`), "vocab"},
		{"no vocab", file(`{"type": "BPE", "merges": []}`), "vocab"},
		{"no merges", file(`{"type": "BPE", "vocab": {"a": 0}}`), "merges"},
		{"negative id", file(`{"type": "BPE", "vocab": {"a": -1}, "merges": []}`), "ids go from 0"},
		{"huge id", file(`{"type": "BPE", "vocab": {"a": 2000000000}, "merges": []}`), "ids go from 0"},
		{"id beyond 64 bits", file(`{"type": "BPE", "vocab": {"a": 99999999999999999999999}, "merges": []}`), "an integer"},
		{"id with a fraction", file(`{"type": "BPE", "vocab": {"a": 1.5}, "merges": []}`), "an integer"},
		{"id as text", file(`{"type": "BPE", "vocab": {"a": "1"}, "merges": []}`), "an integer"},
		{"an id twice", file(`{"type": "BPE", "vocab": {"a": 0, "b": 0}, "merges": []}`), "two tokens"},
		{"a token twice", file(`{"type": "BPE", "vocab": {"a": 0, "a": 1}, "merges": []}`), "twice"},
		{"a merge of a stranger", file(`{"type": "BPE", "vocab": {"a": 0}, "merges": ["a z"]}`), "not in the vocabulary"},
		{"a merge to a stranger", file(`{"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": ["a b"]}`), "not in the vocabulary"},
		{"a merge of three", file(`{"type": "BPE", "vocab": {"a": 0}, "merges": ["a a a"]}`), "space between"},
		{"a merge of one", file(`{"type": "BPE", "vocab": {"a": 0}, "merges": [["a"]]}`), "not 2"},
		{"a merge of numbers", file(`{"type": "BPE", "vocab": {"a": 0}, "merges": [[1, 2]]}`), "not a string"},
		{"a merge that is a number", file(`{"type": "BPE", "vocab": {"a": 0}, "merges": [7]}`), "merges"},
		{"dropout", file(`{"type": "BPE", "dropout": 0.1, "vocab": {"a": 0}, "merges": []}`), "random"},
		{"unknown id too large", file(`{"type": "Unigram", "unk_id": 9, "vocab": [["a", 0]]}`), "unk_id 9"},
		{"a score that is text", file(`{"type": "Unigram", "vocab": [["a", "b"]]}`), "not a number"},
		{"a score too large", file(`{"type": "Unigram", "vocab": [["a", 1e999]]}`), "not a number"},
		{"an entry of one", file(`{"type": "Unigram", "vocab": [["a"]]}`), "not a token and its score"},
		{"a token twice in Unigram", file(`{"type": "Unigram", "vocab": [["a", 0], ["a", 1]]}`), "twice"},
		{"a very long token", file(`{"type": "Unigram", "vocab": [["` + strings.Repeat("a", 5000) + `", 0]]}`), "bytes long"},
		{"no unknown token", file(`{"type": "WordPiece", "vocab": {"a": 0}}`), "unknown token"},
		{"added token with another id", file(smallBPE, `"added_tokens": [{"id": 7, "content": "a"}]`), "earlier"},
		{"added token on a taken id", file(smallBPE, `"added_tokens": [{"id": 0, "content": "x"}]`), "two tokens"},
		{"added token with a negative id", file(smallBPE, `"added_tokens": [{"id": -3, "content": "x"}]`), "ids go from 0"},
		{"added token with a huge id", file(smallBPE, `"added_tokens": [{"id": 4000000000, "content": "x"}]`), "ids go from 0"},
		{"added token without text", file(smallBPE, `"added_tokens": [{"id": 3, "content": ""}]`), "bytes long"},
		{"added token too long", file(smallBPE, `"added_tokens": [{"id": 3, "content": "`+strings.Repeat("x", 2000)+`"}]`), "bytes long"},
		{"added token twice", file(smallBPE, `"added_tokens": [{"id": 3, "content": "x"}, {"id": 3, "content": "x"}]`), "both"},
		{"two that normalize alike", file(smallBPE, `"normalizer": {"type": "Lowercase"}`,
			`"added_tokens": [{"id": 3, "content": "x", "normalized": true}, {"id": 4, "content": "X", "normalized": true}]`), "both"},
		{"unknown normalizer", file(smallBPE, `"normalizer": {"type": "Magic"}`), "not supported"},
		{"normalizer without a type", file(smallBPE, `"normalizer": {}`), "without a type"},
		{"normalizer that is a list", file(smallBPE, `"normalizer": []`), "normalizer"},
		{"deep normalizers", file(smallBPE, `"normalizer": `+deep), "deep"},
		{"very deep file", strings.Repeat("[", 100_000), "parse tokenizer"},
		{"many normalizers", file(smallBPE, `"normalizer": {"type": "Sequence", "normalizers": [`+strings.Repeat(`{"type": "NFC"},`, 50)+`{"type": "NFC"}]}`), "steps"},
		{"empty pattern", file(smallBPE, `"normalizer": {"type": "Replace", "pattern": {"String": ""}, "content": "x"}`), "empty"},
		{"no pattern", file(smallBPE, `"normalizer": {"type": "Replace", "content": "x"}`), "pattern must be"},
		{"two patterns", file(smallBPE, `"normalizer": {"type": "Replace", "pattern": {"String": "a", "Regex": "b"}, "content": "x"}`), "pattern must be"},
		{"bad pattern", file(smallBPE, `"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(a"}, "behavior": "Isolated", "invert": false}`), "(a"},
		{"bad behavior", file(smallBPE, `"pre_tokenizer": {"type": "Split", "pattern": {"String": "a"}, "behavior": "Eaten", "invert": false}`), "behavior"},
		{"bad charsmap", file(smallUnigram, `"normalizer": {"type": "Precompiled", "precompiled_charsmap": "`+base64.StdEncoding.EncodeToString([]byte{255, 0, 0, 0, 1})+`"}`), "trie"},
		{"short charsmap", file(smallUnigram, `"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AA=="}`), "at least 4"},
		{"charsmap that is no base64", file(smallUnigram, `"normalizer": {"type": "Precompiled", "precompiled_charsmap": "@"}`), "base64"},
		{"two letters for a space", file(smallBPE, `"pre_tokenizer": {"type": "Metaspace", "replacement": "ab"}`), "one character"},
		{"bad scheme", file(smallBPE, `"pre_tokenizer": {"type": "Metaspace", "replacement": "a", "prepend_scheme": "later"}`), "prepend_scheme"},
		{"letters of letters", file(smallBPE, `"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "ByteLevel"}, {"type": "ByteLevel"}]}`), "twice"},
		{"unknown decoder", file(smallBPE, `"decoder": {"type": "CTC"}`), "not supported"},
		{"decoder strips a word", file(smallBPE, `"decoder": {"type": "Strip", "content": "ab", "start": 1, "stop": 0}`), "one character"},
		{"template without the text", file(smallBPE, `"post_processor": {"type": "TemplateProcessing", "single": [], "special_tokens": {}}`), "without the text"},
		{"template with a stranger", file(smallBPE, `"post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "q"}}, {"Sequence": {"id": "A"}}], "special_tokens": {}}`), "not among"},
		{"template with a wrong id", file(smallBPE, `"post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "q"}}, {"Sequence": {"id": "A"}}], "special_tokens": {"q": {"ids": [9]}}}`), "no token has"},
		{"template of two texts", file(smallBPE, `"post_processor": {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A"}}, {"Sequence": {"id": "A"}}], "special_tokens": {}}`), "another text"},
		{"half a pair", file(smallBPE, `"post_processor": {"type": "BertProcessing", "cls": ["a"], "sep": ["b", 1]}`), "cls and sep"},
	} {
		if _, err := Parse([]byte(bad.file)); err == nil || !strings.Contains(err.Error(), bad.reason) {
			t.Errorf("%s: %v, want an error that says %q", bad.what, err, bad.reason)
		}
	}
}

func TestErrorsOfFilesStayShort(t *testing.T) {
	_, err := Parse([]byte(file(`{"type": "` + strings.Repeat("x", 1<<20) + `"}`)))
	if err == nil || len(err.Error()) > 300 {
		t.Errorf("an error of %d bytes", len(fmt.Sprint(err)))
	}
}

// TestGrowthIsBounded has files that would make terabytes of a short text.
func TestGrowthIsBounded(t *testing.T) {
	long := `{"type": "Replace", "pattern": {"String": "a"}, "content": "` + strings.Repeat("b", 10_000) + `"}`
	twice := strings.Repeat(`{"type": "Replace", "pattern": {"Regex": "a"}, "content": "aa"},`, 10) + `{"type": "NFC"}`
	for _, hostile := range []string{
		file(smallBPE, `"normalizer": `+long),
		file(smallBPE, `"normalizer": {"type": "Sequence", "normalizers": [`+twice+`]}`),
		file(smallBPE, `"decoder": `+long),
		file(smallBPE, `"decoder": {"type": "Sequence", "decoders": [`+strings.ReplaceAll(twice, `{"type": "NFC"}`, `{"type": "Fuse"}`)+`]}`),
	} {
		tok := mustParse(t, hostile)
		text := strings.Repeat("a", 10_000)
		_, errEncode := tok.Encode(text, false)
		_, errDecode := tok.Decode(make([]int32, 10_000), false)
		if errEncode == nil && errDecode == nil {
			t.Errorf("no complaint about %.120s", hostile)
		}
	}
}

func TestHostilePatternEnds(t *testing.T) {
	tok := mustParse(t, file(smallBPE, `"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(a|a)+(a|a)+(a|a)+(?=c)"}, "behavior": "Isolated", "invert": false}`))
	re := tok.pre[0].(splitter).pattern.(regex)
	if re.MatchTimeout != matchTimeout {
		t.Errorf("one match may take %v, not %v", re.MatchTimeout, matchTimeout)
	}
	re.MatchTimeout = 100 * time.Millisecond // enough to see it end
	if _, err := tok.Encode(strings.Repeat("a", 2000), false); err == nil || !strings.Contains(err.Error(), "(a|a)") {
		t.Errorf("a pattern that takes years returned %v", err)
	}
}

func TestOpenRefusesWhatIsNoFile(t *testing.T) {
	if _, err := Open(filepath.Join(t.TempDir(), "tokenizer.json")); err == nil {
		t.Error("opened a file that does not exist")
	}
	path := filepath.Join(t.TempDir(), "tokenizer.json")
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("%v, want an error that names the file", err)
	}
}

// A file that is too large, or a pipe, is refused before anything of it is read.
func TestOpenLooksBeforeItReads(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokenizer.json")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(file.Truncate(600<<20), file.Close()); err != nil { // sparse
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err = Open(path)
	runtime.ReadMemStats(&after)
	if err == nil || after.TotalAlloc-before.TotalAlloc > 1<<20 {
		t.Errorf("%d bytes allocated, %v", after.TotalAlloc-before.TotalAlloc, err)
	}
	pipe := filepath.Join(t.TempDir(), "tokenizer.json")
	if err := exec.Command("mkfifo", pipe).Run(); err != nil {
		t.Skip("no pipes here")
	}
	if _, err := Open(pipe); err == nil || !strings.Contains(err.Error(), "pipe") {
		t.Errorf("a pipe: %v", err)
	}
}
