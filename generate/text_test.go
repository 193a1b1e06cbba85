package generate_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"spillway/generate"
	"spillway/tokenizer"
)

// script is an engine that continues every text as written, whatever the prompt was.
type script struct {
	text   []int32
	vocab  int
	open   int
	failAt int // length of a text at which Step fails; 0 for never
}

type scripted struct {
	e      *script
	prompt int
	tokens []int32
	ready  bool
}

func (e *script) Streams() int { return 8 }
func (e *script) Context() int { return 1000 }
func (e *script) Close() error { return nil }
func (e *script) Add(prompt []int32) (generate.Sequence, error) {
	e.open++
	return &scripted{e: e, prompt: len(prompt), tokens: slices.Clone(prompt), ready: true}, nil
}
func (e *script) Step(ctx context.Context) error {
	if e.failAt > 0 {
		if e.failAt--; e.failAt == 0 {
			return errors.New("the device is gone")
		}
	}
	return ctx.Err()
}
func (q *scripted) Ready() bool     { return true }
func (q *scripted) Tokens() []int32 { return q.tokens }
func (q *scripted) Len() int        { return len(q.tokens) }
func (q *scripted) Close() error    { q.e.open--; return nil }
func (q *scripted) Logits() []float32 {
	list := make([]float32, q.e.vocab)
	list[q.e.text[(len(q.tokens)-q.prompt)%len(q.e.text)]] = 20
	return list
}
func (q *scripted) Append(tokens ...int32) error {
	q.tokens = append(q.tokens, tokens...)
	return nil
}
func (q *scripted) Truncate(n int) error { q.tokens = q.tokens[:n]; return nil }
func (q *scripted) Fork() (generate.Sequence, error) {
	q.e.open++
	return &scripted{q.e, q.prompt, slices.Clone(q.tokens), true}, nil
}

func bytesOf(text string) (ids []int32) {
	for _, b := range []byte(text) {
		ids = append(ids, int32(b))
	}
	return ids
}

// written is the text of a request and its pieces.
func written(t *testing.T, text string, r generate.Request) (pieces []string, result generate.Result) {
	t.Helper()
	e := &script{text: bytesOf(text), vocab: 256}
	if r.Prompt == nil {
		r.Prompt = bytesOf("?")
	}
	g, err := generate.New(e, tokenizer.Bytes(), r)
	if err != nil {
		t.Fatal(err)
	}
	for piece, err := range g.All(context.Background()) {
		if err != nil {
			t.Fatal(err)
		}
		pieces = append(pieces, piece.Text)
	}
	if e.open != 0 {
		t.Errorf("%d sequences are left open", e.open)
	}
	result = g.Results()[0]
	if got := strings.Join(pieces, ""); got != result.Text {
		t.Errorf("the pieces say %q, the result %q", got, result.Text)
	}
	return pieces, result
}

// Stop strings are found across tokens and cut; what may still become one is held back.
func TestStopStrings(t *testing.T) {
	for _, c := range []struct {
		text   string
		stops  []string
		want   string
		stop   string
		pieces int // that have text
	}{
		{"hello END more", []string{"END"}, "hello ", "END", 6},
		{"hello EN more", []string{"END"}, "hello EN more", "", 0},
		{"aaab", []string{"aab"}, "a", "aab", 1},
		{"one\n\ntwo", []string{"\n\n", "two"}, "one", "\n\n", 3},
		{"abcabd", []string{"abd", "cab"}, "ab", "cab", 0},
		{"xyz", []string{"x"}, "", "x", 0},
		{"ends within E", []string{"END"}, "ends within E", "", 0},
		{"grüße 東京!", []string{"東京"}, "grüße ", "東京", 0},
		{"ab", []string{"b", "ab"}, "", "ab", 0},
	} {
		pieces, r := written(t, c.text, generate.Request{Stop: c.stops, MaxNewTokens: len(c.text)})
		if r.Text != c.want || r.StopString != c.stop || (r.End == generate.Stopped) != (c.stop != "") {
			t.Errorf("%q until %q: %q, ended by %q (%s), want %q", c.text, c.stops, r.Text, r.StopString, r.End, c.want)
		}
		n := 0
		for _, p := range pieces {
			if p != "" {
				n++
			}
		}
		if c.pieces > 0 && n != c.pieces {
			t.Errorf("%q until %q came in %d pieces: %q", c.text, c.stops, n, pieces)
		}
	}
}

// Texts cut at stop strings are those that strings.Index cuts, whatever they are.
func TestStopStringsAreThoseOfIndex(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	word := func(n int) string {
		var b strings.Builder
		for range n {
			b.WriteByte("aab"[random.IntN(3)])
		}
		return b.String()
	}
	for range 500 {
		text, stops := word(30), []string{word(1 + random.IntN(6)), word(1 + random.IntN(6))}
		at := len(text)
		for n := 1; n <= len(text) && at == len(text); n++ { // the first moment at which one is complete
			for _, s := range stops {
				if i := strings.Index(text[:n], s); i >= 0 {
					at = min(at, i)
				}
			}
		}
		if _, r := written(t, text, generate.Request{Stop: stops, MaxNewTokens: len(text)}); r.Text != text[:at] {
			t.Fatalf("%q until %q: %q, want %q", text, stops, r.Text, text[:at])
		}
	}
}

// Half a character is held back until the rest has come, and shown as U+FFFD at the end.
func TestCharactersComeWhole(t *testing.T) {
	pieces, _ := written(t, "aé東🎉z", generate.Request{MaxNewTokens: len("aé東🎉z")})
	if want := []string{"a", "é", "東", "🎉", "z"}; !slices.Equal(slices.DeleteFunc(pieces, func(p string) bool { return p == "" }), want) {
		t.Errorf("the pieces are %q", pieces)
	}
	if _, r := written(t, "a東", generate.Request{MaxNewTokens: 2}); !strings.HasPrefix(r.Text, "a\uFFFD") {
		t.Errorf("half a character at the end is %q", r.Text)
	}
	if _, r := written(t, "a\xffb", generate.Request{MaxNewTokens: 3}); r.Text != "a\uFFFDb" {
		t.Errorf("a byte that is no character is %q", r.Text)
	}
}

// Tokens are counted as they are picked, those of stop strings and stop tokens too.
func TestTokensAreCounted(t *testing.T) {
	e := &script{text: bytesOf("abcdef"), vocab: 256}
	g, err := generate.New(e, tokenizer.Bytes(), generate.Request{Prompt: bytesOf("12"), Stop: []string{"cd"}, MaxNewTokens: 9})
	if err != nil {
		t.Fatal(err)
	}
	tokens := 0
	for piece, err := range g.All(context.Background()) {
		if err != nil {
			t.Fatal(err)
		}
		tokens += len(piece.Tokens)
	}
	if s := g.Statistics(); s.PromptTokens != 2 || s.NewTokens != 4 || tokens != 4 || g.Results()[0].Text != "ab" {
		t.Errorf("%+v, %d tokens in pieces, %+v", s, tokens, g.Results())
	}
}

// A reader may leave, and an engine may fail: no sequence stays open.
func TestNothingStaysOpen(t *testing.T) {
	for _, samples := range []int{1, 3} {
		e := &script{text: bytesOf("abcdef"), vocab: 256}
		r := generate.Request{Prompt: bytesOf("12"), Samples: samples, Sampler: generate.Sampler{Temperature: 0.1}, MaxNewTokens: 50}
		g, err := generate.New(e, tokenizer.Bytes(), r)
		if err != nil {
			t.Fatal(err)
		}
		for range g.All(context.Background()) {
			break
		}
		if e.open != 0 {
			t.Errorf("%d sequences are left open by a reader that left", e.open)
		}
		e.failAt = 3
		if g, err = generate.New(e, tokenizer.Bytes(), r); err != nil {
			t.Fatal(err)
		}
		for _, err = range g.All(context.Background()) {
		}
		if err == nil || !strings.Contains(err.Error(), "the device is gone") || e.open != 0 {
			t.Errorf("%v, %d sequences are left open", err, e.open)
		}
	}
}

// A sequence that is given is continued and stays open, as chats need it.
func TestGivenSequencesStay(t *testing.T) {
	e := &script{text: bytesOf("abc"), vocab: 256}
	q, err := e.Add(bytesOf("12"))
	if err != nil {
		t.Fatal(err)
	}
	g, err := generate.New(e, tokenizer.Bytes(), generate.Request{Prompt: bytesOf("1234"), Sequence: q, MaxNewTokens: 3})
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range g.All(context.Background()) {
		if err != nil {
			t.Fatal(err)
		}
	}
	if s := g.Statistics(); e.open != 1 || s.ReusedTokens != 2 || s.PromptTokens != 4 {
		t.Errorf("%d open, %+v", e.open, s)
	}
}

// The space before a word is part of the text unless the text begins there.
func TestSpacesAfterThePrompt(t *testing.T) {
	words := []string{"▁once", "▁upon", "▁time"}
	var vocab []string
	for i, w := range words {
		vocab = append(vocab, fmt.Sprintf("%q: %d", w, i))
	}
	tok, err := tokenizer.Parse([]byte(`{"model": {"type": "BPE", "vocab": {` + strings.Join(vocab, ",") + `}, "merges": []},
		"decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, beams := range []*generate.BeamSearch{nil, {Count: 1}} {
		g, err := generate.New(&script{text: []int32{1, 2}, vocab: 3}, tok, generate.Request{Prompt: []int32{0}, MaxNewTokens: 2, Beams: beams})
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range g.All(context.Background()) {
			if err != nil {
				t.Fatal(err)
			}
		}
		if got := g.Results()[0].Text; got != " upon time" {
			t.Errorf("the text after \"once\" is %q", got)
		}
	}
}

// A model may have more ids than its tokenizer, whose vocabulary was rounded up: they write nothing, as transformers'
// decode has it, and are among the tokens.
func TestIDsBeyondTheTokenizerWriteNothing(t *testing.T) {
	e := &script{text: []int32{'a', 280, 0xc3, 281, 0xbc, 'b'}, vocab: 300} // one between the two bytes of a character
	g, err := generate.New(e, tokenizer.Bytes(), generate.Request{Prompt: []int32{'?'}, Stop: []string{"\u00fcb"}, MaxNewTokens: 20})
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range g.All(context.Background()) {
		if err != nil {
			t.Fatal(err)
		}
	}
	r, s := g.Results()[0], g.Statistics()
	if r.Text != "a" || r.StopString != "\u00fcb" || len(r.Tokens) != 6 || r.Tokens[1].ID != 280 || s.Unwritten != 2 {
		t.Errorf("%q until %q, %v, %d tokens unwritten", r.Text, r.StopString, r.Tokens, s.Unwritten)
	}
}
