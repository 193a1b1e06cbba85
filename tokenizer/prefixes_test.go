package tokenizer

import (
	"errors"
	"flag"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

var texts = flag.Int("texts", 60, "compare the beginnings of `N` random texts of each tokenizer")

// Beginnings of a text have the ids in common with it that they have when they are encoded by
// themselves.
func TestPrefixesAreEncodedAsByThemselves(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	all := map[string]*Tokenizer{"bytes": Bytes(), "strips": mustParse(t, file(smallBPE, `"added_tokens": [
{"id": 3, "content": "<a>", "lstrip": true, "rstrip": true}, {"id": 4, "content": "<a>b", "single_word": true}, {"id": 5, "content": "a<"}, {"id": 6, "content": " <"}]`))}
	for _, name := range tinyNames(t) {
		all[name] = openTiny(t, name)
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		tok := all[name]
		words := []string{" ", "\n", "a", "b", "ab", "<a>", "<a>b", "Hello", " world", "1234", "漢字", "é", "<s>", "</s>", "<|im_start|>", "<|eot_id|>", "<"}
		for id := range tok.VocabSize() {
			if s, ok := tok.Token(int32(id)); ok && strings.HasPrefix(s, "<") && len(words) < 60 {
				words = append(words, s)
			}
		}
		for range *texts {
			var b strings.Builder
			for range random.IntN(30) {
				b.WriteString(words[random.IntN(len(words))])
			}
			comparePrefixes(t, name, tok, b.String())
		}
	}
}

func comparePrefixes(t *testing.T, name string, tok *Tokenizer, text string) {
	t.Helper()
	var ends []int
	for end := range len(text) + 1 {
		if utf8.ValidString(text[:end]) {
			ends = append(ends, end)
		}
	}
	ids, common, counts, err := tok.EncodePrefixes(text, ends)
	want, errPlain := tok.Encode(text, false)
	for _, end := range ends { // a beginning may have a character that only its continuation makes a token
		_, errBeginning := tok.Encode(text[:end], false)
		errPlain = errors.Join(errPlain, errBeginning)
	}
	if (err == nil) != (errPlain == nil) || err == nil && len(ids) != len(want) {
		t.Fatalf("%s: %q: %v %v, want %v %v", name, text, ids, err, want, errPlain)
	}
	if err != nil {
		return
	}
	for i, end := range ends {
		own, err := tok.Encode(text[:end], false)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for n < len(own) && n < len(want) && own[n] == want[n] {
			n++
		}
		if common[i] != n || counts[i] != len(own) {
			t.Fatalf("%s: %q of %q: %d of %d in common, want %d of %d", name, text[:end], text, common[i], counts[i], n, len(own))
		}
	}
}
