package tokenizer

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"spillway/internal/bounded"
)

// FuzzParse reads damaged files. A tokenizer that is accepted must encode and decode
// without a panic, and give only ids that it has.
func FuzzParse(f *testing.F) {
	for _, field := range []string{"normalizers", "pre_tokenizers", "decoders"} {
		for _, config := range stepConfigs(f, field) {
			f.Add([]byte(file(smallUnigram, fmt.Sprintf("%q: %s", strings.TrimSuffix(field, "s"), config))))
		}
	}
	f.Add([]byte(file(smallBPE)))
	f.Add(llama2c(" t", "he", " the"))
	for _, name := range tinyNames(f) {
		raw, err := os.ReadFile(filepath.Join("testdata", "tiny", name+".json"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		bounded.Check(t, len(data), func() {
			for _, parse := range []func([]byte) (*Tokenizer, error){Parse, ParseLlama2C} {
				tok, err := parse(data)
				if err != nil {
					continue
				}
				for _, text := range []string{"", "a", "Hello <s> wörld's  \n\n 1234 \u2581 漢字 e\u0301 😀 a\u00a0b aaaaaaaa", strings.Repeat("a", 2000)} {
					checkIDs(t, tok, text)
				}
			}
		})
	})
}

// stepConfigs are the single steps of one stage that the library was asked about.
func stepConfigs(f *testing.F, stage string) []json.RawMessage {
	var steps map[string]json.RawMessage
	readFixture(f, "steps.json.gz", &steps)
	var configs []struct{ Config json.RawMessage }
	if err := json.Unmarshal(steps[stage], &configs); err != nil {
		f.Fatal(err)
	}
	var out []json.RawMessage
	for _, c := range configs {
		out = append(out, c.Config)
	}
	return out
}

// checkIDs encodes text and decodes the result; errors are allowed.
func checkIDs(t *testing.T, tok *Tokenizer, text string) {
	ids, err := tok.Encode(text, true)
	if err != nil {
		return
	}
	for _, id := range ids {
		if _, ok := tok.Token(id); !ok {
			t.Fatalf("%q has id %d, which is no token", text, id)
		}
	}
	if back, err := tok.Decode(ids, false); err == nil && !utf8.ValidString(back) {
		t.Fatalf("%v decodes to %q, which is not UTF-8", ids, back)
	}
}

// FuzzEncode gives any text to the small tokenizers. The byte-level one must be
// lossless, and agree with the regex engine and the plain way of merging.
func FuzzEncode(f *testing.F) {
	for _, text := range readCorpus(f) {
		f.Add(text)
	}
	var all []*Tokenizer
	for _, name := range tinyNames(f) {
		all = append(all, openTiny(f, name))
	}
	exact := openTiny(f, "llama3")
	f.Fuzz(func(t *testing.T, text string) {
		for _, tok := range all {
			checkIDs(t, tok, text)
		}
		ids, err := exact.Encode(text, false)
		if err != nil {
			if utf8.ValidString(text) {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		if back, err := exact.Decode(ids, false); err != nil || back != text {
			t.Fatalf("%q comes back as %q %v", text, back, err)
		}
		if got := streamed(t, exact, ids, false); got != text {
			t.Fatalf("%q streams as %q", text, got)
		}
		if want := encodePlainly(exact, text); !slices.Equal(ids, want) {
			t.Fatalf("%q is %v, plainly %v", text, ids, want)
		}
	})
}

// encodePlainly is byte-level encoding in the simplest way: with the regex engine, without
// cache and heap.
func encodePlainly(tok *Tokenizer, text string) []int32 {
	m := tok.model.(*bpe)
	re := compileRegex(patternLlama3)
	var ids []int32
	tok.original.split(text, func(start, end int) {
		for _, word := range matches(re, text[start:end]) {
			if id, ok := m.vocab.ids[toLetters(word)]; ok && m.wordTokens != nil {
				ids = append(ids, id)
				continue
			}
			ids = append(ids, joinPlainly(m, m.symbols(nil, word))...)
		}
	}, func(id int32) { ids = append(ids, id) })
	return ids
}
