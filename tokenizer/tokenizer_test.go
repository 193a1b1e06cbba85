package tokenizer

import (
	"slices"
	"strings"
	"sync"
	"testing"
)

func TestBytes(t *testing.T) {
	tok := Bytes()
	if tok.VocabSize() != 256 {
		t.Errorf("VocabSize = %d", tok.VocabSize())
	}
	for _, text := range []string{"", "abc", "é😀\x00", "half \xe2\x82", strings.Repeat("long ", 1000)} {
		ids, err := tok.Encode(text, true)
		if err != nil || len(ids) != len(text) {
			t.Fatalf("%q has %d ids, %v", text, len(ids), err)
		}
		for i, id := range ids {
			if byte(id) != text[i] {
				t.Fatalf("byte %d of %q has id %d", i, text, id)
			}
		}
		if back, err := tok.Decode(ids, false); err != nil || back != strings.ToValidUTF8(text, "\uFFFD") {
			t.Errorf("%q comes back as %q %v", text, back, err)
		}
	}
}

func TestVocabularyLookups(t *testing.T) {
	tok := openTiny(t, "llama2")
	for id := range int32(tok.VocabSize()) {
		token, ok := tok.Token(id)
		if back, ok2 := tok.ID(token); !ok || !ok2 || back != id {
			t.Fatalf("id %d is token %q %v, which has id %d %v", id, token, ok, back, ok2)
		}
		if want := id < 3; tok.Special(id) != want {
			t.Errorf("Special(%d) of %q = %v", id, token, !want)
		}
	}
	for _, id := range []int32{-1, int32(tok.VocabSize()), 1 << 30} {
		if token, ok := tok.Token(id); ok || tok.Special(id) {
			t.Errorf("id %d is token %q", id, token)
		}
		if text, err := tok.Decode([]int32{5, id}, false); err == nil {
			t.Errorf("id %d decodes to %q", id, text)
		}
	}
	if id, ok := tok.ID("no such token"); ok {
		t.Errorf("a token that is not there has id %d", id)
	}
}

func TestTextMustBeUTF8(t *testing.T) {
	_, err := openTiny(t, "qwen2").Encode("abc\xffdef\ufffd", false)
	if err == nil || !strings.Contains(err.Error(), "byte 3 ") {
		t.Errorf("%v, want an error that names byte 3", err)
	}
}

func TestUnknownCharactersAreErrors(t *testing.T) {
	for _, model := range []string{smallBPE, `{"type": "Unigram", "vocab": [["a", 0]]}`} {
		tok := mustParse(t, file(model))
		if ids, err := tok.Encode("azb", false); err == nil || !strings.Contains(err.Error(), `"z"`) {
			t.Errorf("%s: z became %v %v, want an error that names it", model, ids, err)
		}
	}
}

func TestAGapBetweenIDsIsKept(t *testing.T) {
	tok := mustParse(t, file(smallBPE, `"added_tokens": [{"id": 9, "content": "<x>", "special": true}]`))
	checkEncode(t, tok, "a<x>ab", []int32{0, 9, 2})
	if _, ok := tok.Token(5); ok || tok.VocabSize() != 10 {
		t.Errorf("id 5 is a token: %v; VocabSize %d", ok, tok.VocabSize())
	}
}

func TestAddedTokensTakeTheLongest(t *testing.T) {
	tok := mustParse(t, file(smallBPE, `"added_tokens": [{"id": 3, "content": "<a"}, {"id": 4, "content": "<a>"}, {"id": 5, "content": "a>"}]`))
	checkEncode(t, tok, "<a><a<aa>b", []int32{4, 3, 3, 5, 1})
}

// TestTheCacheChangesNothing encodes words often enough to push each other out.
func TestTheCacheChangesNothing(t *testing.T) {
	tok := openTiny(t, "llama3")
	w := &scratch{cache: newWordCache()}
	for range 3 {
		for _, text := range append(readCorpus(t), nastyTexts(30_000)...) {
			cached, fresh := tok.encodeWord(nil, "x"+text, w), tok.model.encode(nil, "x"+text, w)
			if !slices.Equal(cached, fresh) {
				t.Fatalf("%q is %v with the cache, %v without", text, cached, fresh)
			}
		}
	}
}

func TestConcurrentUse(t *testing.T) {
	tok := openTiny(t, "unigram-bytes")
	corpus := readCorpus(t)
	want := make([][]int32, len(corpus))
	for i, text := range corpus {
		want[i], _ = tok.Encode(text, true)
	}
	var group sync.WaitGroup
	for worker := range 8 {
		group.Go(func() {
			for i := range corpus {
				i = (i + 37*worker) % len(corpus)
				got, err := tok.Encode(corpus[i], true)
				if err != nil || !slices.Equal(got, want[i]) {
					t.Errorf("%q is %v %v next to others, %v alone", corpus[i], got, err, want[i])
				}
				if _, err := tok.Decode(got, true); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
}

func TestLossyKeepsBrokenCharactersTogether(t *testing.T) {
	for bytes, want := range map[string]string{
		"":                     "",
		"a\xff\xfeb":           "a��b",
		"\xe2\x82":             "�",
		"\xe2\x82\xe2\x82\xac": "�€",
		"\xf0\x9f\x98":         "�",
		"\xf0\x9f\x98a":        "�a",
		"\xe0\x80\x80":         "���",
		"\xed\xa0\x80":         "���",
		"\xf4\x90\x80\x80":     "����",
		"\xc0\x80":             "��",
		"\x80":                 "�",
	} {
		if got := validUTF8([]byte(bytes)); got != want {
			t.Errorf("lossy(%q) = %q, want %q", bytes, got, want)
		}
	}
}
