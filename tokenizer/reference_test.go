package tokenizer

import (
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The files under testdata were made with the tokenizers library by
// tools/reference/tokenizers/expect.py. Tests here compare with them to the last id.

// expected is what the library makes of one text of the corpus. A field left out
// is the same as the one its comment names.
type expected struct {
	Plain   []int32 `json:"plain"`   // without special tokens around it
	Special []int32 `json:"special"` // with them; or Plain
	Decoded *string `json:"decoded"` // all of Special; or the text
	Skipped *string `json:"skipped"` // without special tokens; or the text
}

func readFixture(t testing.TB, name string, into any) {
	t.Helper()
	file, err := os.Open(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	unzipped, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.NewDecoder(unzipped).Decode(into); err != nil {
		t.Fatal(err)
	}
}

func readCorpus(t testing.TB) []string {
	var corpus []string
	readFixture(t, "corpus.json.gz", &corpus)
	return corpus
}

// realTokenizers are the files the fetch script brings.
var realTokenizers = []string{"gpt2", "llama2", "llama3", "qwen2_5", "qwen3"}

// openReal opens a file that is not part of the repository.
func openReal(t testing.TB, name string) *Tokenizer {
	t.Helper()
	path := filepath.Join("..", "testdata", "tokenizers", name+".json")
	if _, err := os.Stat(path); err != nil {
		t.Skipf("%s is missing; tools/reference/tokenizers/fetch.sh fetches it", path)
	}
	return mustOpen(t, path)
}

func mustOpen(t testing.TB, path string) *Tokenizer {
	t.Helper()
	tok, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func tinyNames(t testing.TB) []string {
	paths, err := filepath.Glob("testdata/tiny/*.json")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no tokenizers under testdata/tiny: %v", err)
	}
	for i, path := range paths {
		paths[i] = strings.TrimSuffix(filepath.Base(path), ".json")
	}
	return paths
}

func openTiny(t testing.TB, name string) *Tokenizer {
	t.Helper()
	return mustOpen(t, filepath.Join("testdata", "tiny", name+".json"))
}

func TestTinyTokenizersMatchTheLibrary(t *testing.T) {
	for _, name := range tinyNames(t) {
		t.Run(name, func(t *testing.T) { compareCorpus(t, openTiny(t, name), "tiny-"+name) })
	}
}

func TestRealTokenizersMatchTheLibrary(t *testing.T) {
	for _, name := range realTokenizers {
		t.Run(name, func(t *testing.T) { compareCorpus(t, openReal(t, name), name) })
	}
}

func compareCorpus(t *testing.T, tok *Tokenizer, name string) {
	var want struct{ Cases []expected }
	readFixture(t, filepath.Join("expect", name+".json.gz"), &want)
	corpus := readCorpus(t)
	if len(corpus) != len(want.Cases) {
		t.Fatalf("corpus has %d texts, the fixture %d", len(corpus), len(want.Cases))
	}
	right := 0
	for i, text := range corpus {
		if compareCase(t, tok, text, want.Cases[i]) {
			right++
		}
	}
	t.Logf("%d of %d texts exact: ids with and without special tokens, decoded with and without", right, len(corpus))
}

func compareCase(t *testing.T, tok *Tokenizer, text string, want expected) bool {
	if want.Special == nil {
		want.Special = want.Plain
	}
	right := true
	for _, special := range []bool{false, true} {
		ids := want.Plain
		if special {
			ids = want.Special
		}
		if got, err := tok.Encode(text, special); err != nil || !slices.Equal(got, ids) {
			t.Errorf("Encode(%q, %v)\n got %v %v\nwant %v", text, special, got, err, ids)
			right = false
		}
	}
	for _, skip := range []bool{false, true} {
		back := want.Decoded
		if skip {
			back = want.Skipped
		}
		if back == nil {
			back = &text
		}
		if got, err := tok.Decode(want.Special, skip); err != nil || got != *back {
			t.Errorf("Decode(%v, %v) of %q\n got %q %v\nwant %q", want.Special, skip, text, got, err, *back)
			right = false
		}
	}
	return right
}

func TestStepsMatchTheLibrary(t *testing.T) {
	type step[W any] struct {
		Config json.RawMessage
		Want   []W
	}
	var want struct {
		Texts         []string
		Tokens        [][]string
		Normalizers   []step[string]
		PreTokenizers []step[[]string] `json:"pre_tokenizers"`
		Decoders      []step[string]
	}
	readFixture(t, "steps.json.gz", &want)
	for _, s := range want.Normalizers {
		n := parseNormalizers(s.Config)
		for i, text := range want.Texts {
			if got := n.normalize(text); got != s.Want[i] {
				t.Errorf("%s of %q\n got %q\nwant %q", s.Config, text, got, s.Want[i])
			}
		}
	}
	for _, s := range want.PreTokenizers {
		pre := parsePreTokenizers(s.Config)
		for i, text := range want.Texts {
			if got := cutAll(pre, text); !slices.Equal(got, s.Want[i]) {
				t.Errorf("%s of %q\n got %q\nwant %q", s.Config, text, got, s.Want[i])
			}
		}
	}
	for _, s := range want.Decoders {
		d := parseDecoders(s.Config)
		for i, tokens := range want.Tokens {
			if got := d.text(tokens); got != s.Want[i] {
				t.Errorf("%s of %q\n got %q\nwant %q", s.Config, tokens, got, s.Want[i])
			}
		}
	}
}

// cutAll returns the pieces of a text.
func cutAll(pre []preTokenizer, text string) (pieces []string) {
	if text != "" {
		chain(pre, func(p piece) { pieces = append(pieces, p.text) })(piece{text, true})
	}
	return pieces
}
