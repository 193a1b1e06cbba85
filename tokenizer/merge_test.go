package tokenizer

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// joinPlainly is byte pair encoding as textbooks explain it: find the pair with the lowest
// rank, the leftmost of them, merge it, begin again.
func joinPlainly(m *bpe, symbols []int32) []int32 {
	for {
		at, best := -1, merge{rank: noRank}
		for i := 0; i+1 < len(symbols); i++ {
			if found, ok := m.merges[pairOf(symbols[i], symbols[i+1])]; ok && found.rank < best.rank {
				at, best = i, found
			}
		}
		if at < 0 {
			return symbols
		}
		symbols = append(append(slices.Clone(symbols[:at]), best.id), symbols[at+2:]...)
	}
}

// randomMerges is a model over n characters in which every symbol may merge with
// many others, so that candidates keep going stale.
func randomMerges(random *rand.Rand, n, merges int) *bpe {
	m := &bpe{merges: map[pair]merge{}}
	for symbols := int32(n); len(m.merges) < merges; symbols++ {
		p := pairOf(random.Int32N(symbols), random.Int32N(symbols))
		if _, ok := m.merges[p]; !ok {
			m.merges[p] = merge{int32(len(m.merges)), symbols}
		}
	}
	return m
}

func TestJoiningMatchesThePlainWay(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		letters := 1 + random.IntN(4)
		m := randomMerges(random, letters, 1+random.IntN(40))
		symbols := make([]int32, 1+random.IntN(90))
		for i := range symbols {
			symbols[i] = random.Int32N(int32(letters))
		}
		want := joinPlainly(m, symbols)
		if got := m.joinLong(slices.Clone(symbols), &scratch{}); !slices.Equal(got, want) {
			t.Fatalf("joinLong(%v) = %v, want %v", symbols, got, want)
		}
		if len(symbols) > shortWord {
			continue
		}
		if got := m.joinShort(slices.Clone(symbols)); !slices.Equal(got, want) {
			t.Fatalf("joinShort(%v) = %v, want %v", symbols, got, want)
		}
	}
}

// TestCuttingWordsChangesNothing encodes with and without the split before '▁'.
func TestCuttingWordsChangesNothing(t *testing.T) {
	cut, whole := openTiny(t, "llama2"), openTiny(t, "llama2")
	if cut.model.(*bpe).splitAt != spaceLetter {
		t.Fatal("the tokenizer does not cut before its letter for the space")
	}
	whole.model.(*bpe).splitAt = ""
	for _, text := range append(readCorpus(t), nastyTexts(2000)...) {
		got, err := cut.Encode(text, false)
		want, wantErr := whole.Encode(text, false)
		if err != nil || wantErr != nil || !slices.Equal(got, want) {
			t.Fatalf("%q is %v %v in words, %v %v as one", text, got, err, want, wantErr)
		}
	}
}

func TestAMergeAcrossTheCutForbidsIt(t *testing.T) {
	tok := mustParse(t, `{"model": {"type": "BPE", "vocab": {"a": 0, "▁": 1, "a▁": 2}, "merges": ["a ▁"]}}`)
	if tok.model.(*bpe).splitAt != "" {
		t.Error("words are cut where the token a▁ crosses")
	}
	checkEncode(t, tok, "a▁a", []int32{2, 0})
}

// TestLongWordsEndSoon would take many minutes if the work grew with the square.
func TestLongWordsEndSoon(t *testing.T) {
	for _, name := range tinyNames(t) {
		tok := openTiny(t, name)
		for _, unit := range []string{"a", "the", " ", "!", "0", "é", "漢", "▁", "😀", "\n", "x\u0301"} {
			text := strings.Repeat(unit, 1+(1<<16)/len(unit))
			if _, err := tok.Encode(text, true); err != nil {
				t.Errorf("%s of %q...: %v", name, unit, err)
			}
		}
	}
}

func mustParse(t testing.TB, file string) *Tokenizer {
	t.Helper()
	tok, err := Parse([]byte(file))
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func checkEncode(t *testing.T, tok *Tokenizer, text string, want []int32) {
	t.Helper()
	if got, err := tok.Encode(text, false); err != nil || !slices.Equal(got, want) {
		t.Errorf("Encode(%q) = %v %v, want %v", text, got, err, want)
	}
}
