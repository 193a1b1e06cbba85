package tokenizer

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// bestPlainly tries every way to cut a word and returns the best sum of scores.
func bestPlainly(m *unigram, word string) float64 {
	if word == "" {
		return 0
	}
	best := math.Inf(-1)
	for n := 1; n <= len(word); n++ {
		if id, ok := m.vocab.ids[word[:n]]; ok {
			best = max(best, m.scores[id]+bestPlainly(m, word[n:]))
		}
	}
	if _, known := m.vocab.ids[word[:1]]; !known {
		best = max(best, m.penalty+bestPlainly(m, word[1:]))
	}
	return best
}

func TestUnigramFindsTheBestCut(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	for range 300 {
		entries := []string{`["<unk>", 0]`}
		seen := map[string]bool{}
		for range 1 + random.IntN(25) {
			token := randomWord(random, "abc", 4)
			if !seen[token] {
				entries = append(entries, fmt.Sprintf(`[%q, %d]`, token, -random.IntN(1000)))
			}
			seen[token] = true
		}
		tok := mustParse(t, `{"model": {"type": "Unigram", "unk_id": 0, "vocab": [`+strings.Join(entries, ",")+`]}}`)
		m := tok.model.(*unigram)
		word := randomWord(random, "abcd", 10)
		best := m.search(nil, word)
		if got, want := best[len(word)].score, bestPlainly(m, word); got != want {
			t.Fatalf("%q with %v scores %g, the best cut %g", word, entries, got, want)
		}
	}
}

func randomWord(random *rand.Rand, letters string, most int) string {
	word := make([]byte, 1+random.IntN(most))
	for i := range word {
		word[i] = letters[random.IntN(len(letters))]
	}
	return string(word)
}

// TestTrieFindsEveryPrefix compares with looking each prefix up in a map.
func TestTrieFindsEveryPrefix(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	for range 500 {
		v := newVocab()
		for id := range int64(1 + random.IntN(40)) {
			if word := randomWord(random, "ab\x00\xff", 6); v.ids[word] == 0 {
				v.add(v.ids, word, id+1, 40)
			}
		}
		pieces := v.trie("")
		text := randomWord(random, "ab\x00\xff", 9)
		var got, want []int32
		pieces.walk(text, func(id int32, length int) { got = append(got, id, int32(length)) })
		for n := 1; n <= len(text); n++ {
			if id, ok := v.ids[text[:n]]; ok {
				want = append(want, id, int32(n))
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("%q among %q: %v, want %v", text, v.tokens, got, want)
		}
	}
}
