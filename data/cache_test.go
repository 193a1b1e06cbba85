package data

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"spillway/chat"
	"spillway/internal/bounded"
)

// chatFile opens a file of conversations.
func chatFile(t testing.TB, lines string) *Records {
	t.Helper()
	r, err := OpenJSONL(file(t, lines), JSONLOptions{Template: func() (*chat.Template, error) {
		return chat.Parse("test", "{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}")
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// turns is a line with a conversation of so many turns.
func turns(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,{"role":%q,"content":"Turn %d, of usual length, says something."}`, []string{"user", "assistant"}[i%2], i)
	}
	return `{"messages":[` + b.String()[1:] + "]}\n"
}

// counting is a tokenizer that counts its calls.
type counting struct {
	byteTokens
	calls int
}

func (c *counting) Encode(text string, addSpecial bool) ([]int32, error) {
	c.calls++
	return c.byteTokens.Encode(text, addSpecial)
}

// Conversations are rendered and tokenized once, and are the same from the cache, whether it
// has room for all, some or none of them.
func TestConversationsAreTokenizedOnce(t *testing.T) {
	r := chatFile(t, turns(4)+turns(2)+turns(7)+turns(2))
	want := Tokenize(r, byteTokens{}, TokenizeOptions{})
	for _, most := range []int64{1 << 20, 1000, 0} {
		c, err := NewCache(t.TempDir(), most)
		if err != nil {
			t.Fatal(err)
		}
		tokens := &counting{}
		s := Tokenize(r, tokens, TokenizeOptions{Cache: c})
		var calls []int
		for range 3 {
			before := tokens.calls
			for i := range s.Len() {
				got, err := s.Document(i)
				plain, errPlain := want.Document(i)
				if err != nil || errPlain != nil || !reflect.DeepEqual(got, plain) {
					t.Errorf("document %d: %+v, %v; want %+v, %v", i, got, err, plain, errPlain)
				}
			}
			calls = append(calls, tokens.calls-before)
		}
		if kept := calls[1] == 0 && calls[2] == 0; kept != (most == 1<<20) || calls[1] > calls[0] {
			t.Errorf("with %d bytes the tokenizer is called %v times", most, calls)
		}
		if _, err := s.Document(s.Len()); err == nil {
			t.Error("a document past the end")
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// prefixes is a tokenizer whose tokens are bytes, which knows those of beginnings.
type prefixes struct{ byteTokens }

func (p prefixes) EncodePrefixes(text string, ends []int) ([]int32, []int, []int, error) {
	tokens, err := p.Encode(text, false)
	return tokens, ends, ends, err
}

// Ten times as many turns take about ten times as long to open and to tokenize, and give the
// same documents as the plain way.
func TestLongConversationsTakeTimeInProportion(t *testing.T) {
	took := func(n int) (document Document, seconds float64) {
		line := turns(n)
		for i := range 3 {
			u := bounded.Measure(func() {
				var err error
				if document, err = Tokenize(chatFile(t, line), prefixes{}, TokenizeOptions{}).Document(0); err != nil {
					t.Fatal(err)
				}
			})
			if s := u.Time.Seconds(); i == 0 || s < seconds {
				seconds = s
			}
		}
		return document, seconds
	}
	got, few := took(300)
	_, many := took(3000)
	plain, err := Tokenize(chatFile(t, turns(300)), byteTokens{}, TokenizeOptions{}).Document(0)
	if err != nil || !reflect.DeepEqual(got, plain) {
		t.Errorf("documents differ, %v", err)
	}
	if t.Logf("300 turns %.4f s, 3000 turns %.4f s", few, many); many > 40*few {
		t.Errorf("300 turns take %v s, 3000 turns %v s", few, many)
	}
}

// numbered is a source of so many documents, whose tokens are its number and theirs.
type numbered struct {
	source int32
	n      int64
}

func (n numbered) Len() int64 { return n.n }
func (n numbered) Document(i int64) (Document, error) {
	return Document{Tokens: []int32{n.source, int32(i)}}, inRange(i, n.n)
}

// Documents of joined sources follow one another, also past empty ones.
func TestConcatFindsEveryDocument(t *testing.T) {
	var sources []Source
	var want [][]int32
	for i, n := range []int64{0, 3, 0, 0, 1, 5, 0} {
		sources = append(sources, numbered{int32(i), n})
		for k := range n {
			want = append(want, []int32{int32(i), int32(k)})
		}
	}
	s := Concat(sources...)
	if s.Len() != int64(len(want)) || Concat().Len() != 0 {
		t.Fatalf("%d documents, want %d", s.Len(), len(want))
	}
	for i, w := range want {
		if d, err := s.Document(int64(i)); err != nil || !reflect.DeepEqual(d.Tokens, w) {
			t.Errorf("document %d: %v, %v; want %v", i, d.Tokens, err, w)
		}
	}
	for _, i := range []int64{-1, s.Len()} {
		if _, err := s.Document(i); err == nil {
			t.Errorf("document %d is there", i)
		}
	}
}
