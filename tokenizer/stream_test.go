package tokenizer

import (
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"
)

// streamed decodes ids one by one and checks that no part is half a character.
func streamed(t *testing.T, tok *Tokenizer, ids []int32, skipSpecial bool) string {
	t.Helper()
	var b strings.Builder
	stream := tok.Stream(skipSpecial)
	take := func(part string, err error) {
		if err != nil {
			t.Fatal(err)
		}
		if !utf8.ValidString(part) {
			t.Errorf("%v gives %q, which is not UTF-8", ids, part)
		}
		b.WriteString(part)
	}
	for _, id := range ids {
		take(stream.Push(id))
	}
	take(stream.Flush())
	return b.String()
}

func TestStreamGivesWhatDecodeGives(t *testing.T) {
	for _, name := range tinyNames(t) {
		tok := openTiny(t, name)
		if name == "clip" {
			continue // its decoder treats the last token differently, whichever that will be
		}
		for _, text := range readCorpus(t) {
			ids, err := tok.Encode(text, true)
			if err != nil {
				t.Fatal(err)
			}
			for _, skip := range []bool{false, true} {
				want, err := tok.Decode(ids, skip)
				if err != nil {
					t.Fatal(err)
				}
				if got := streamed(t, tok, ids, skip); got != want {
					t.Errorf("%s streams %q, decodes %q", name, got, want)
				}
			}
		}
	}
}

// TestStreamOfNoise streams ids no text has: byte tokens in any order.
func TestStreamOfNoise(t *testing.T) {
	random := rand.New(rand.NewPCG(9, 10))
	tok := Bytes()
	for range 2000 {
		ids := make([]int32, random.IntN(100))
		for i := range ids {
			ids[i] = []int32{0xe2, 0x82, 0xac, 0xf0, 0x9f, 0xff, 0xef, 0xbf, 0xbd, 'a'}[random.IntN(10)]
		}
		want, err := tok.Decode(ids, false)
		if err != nil {
			t.Fatal(err)
		}
		if got := streamed(t, tok, ids, false); got != want {
			t.Errorf("%v streams %q, decodes %q", ids, got, want)
		}
	}
}

func TestStreamHoldsHalfACharacter(t *testing.T) {
	stream := Bytes().Stream(false)
	for i, want := range []string{"a", "", "", "€", "", "", "", "😀", ""} {
		part, err := stream.Push(int32("a€😀\xe2"[i]))
		if err != nil || part != want {
			t.Errorf("byte %d gives %q %v, want %q", i, part, err, want)
		}
	}
	if rest, err := stream.Flush(); err != nil || rest != "\uFFFD" {
		t.Errorf("Flush gives %q %v, want the broken character", rest, err)
	}
	if rest, err := stream.Flush(); err != nil || rest != "" {
		t.Errorf("a second Flush gives %q %v", rest, err)
	}
}

func TestStreamOfReplacementCharacters(t *testing.T) {
	text := strings.Repeat("\uFFFD", 50) + "é€😀" + strings.Repeat("\uFFFD", 7) + "é"
	for _, name := range []string{"llama3", "bytelevel"} {
		tok := openTiny(t, name)
		ids, err := tok.Encode(text, false)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.TrimPrefix(streamed(t, tok, ids, false), " "); got != text {
			t.Errorf("%s streams %q", name, got)
		}
	}
}

func TestStreamGivesUpOnNoise(t *testing.T) {
	stream := Bytes().Stream(false)
	shown := 0
	for range 10 * maxPending {
		part, err := stream.Push(0xff)
		if err != nil {
			t.Fatal(err)
		}
		shown += len(part)
	}
	if shown == 0 {
		t.Error("a stream of broken bytes is held for ever")
	}
}

func TestStreamRefusesUnknownIDs(t *testing.T) {
	stream := Bytes().Stream(false)
	if _, err := stream.Push(256); err == nil {
		t.Error("id 256 of 256 was taken")
	}
	if part, err := stream.Push('x'); err != nil || part != "x" {
		t.Errorf("after an error: %q %v", part, err)
	}
}
