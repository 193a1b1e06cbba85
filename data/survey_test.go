package data

import (
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// A survey counts what a loader then gives: rows, tokens, targets.
func TestSurvey(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		c := Config{Length: 2 + r.IntN(60), Seed: r.Uint64(), InOrder: r.IntN(2) == 0, WholeDocuments: r.IntN(2) == 0, OneDocument: r.IntN(3) == 0, Epochs: int64(1 + r.IntN(3))}
		source := someLengths(1+r.IntN(200), r.Uint64())
		source[0] = 5
		var reported int64
		v, err := NewSurvey(source, func(done, total int64) { reported = max(reported, done) })
		if err != nil {
			t.Fatal(err)
		}
		l := newLoader(t, source, c)
		b := NewBatch(1, c.Length)
		var rows, tokens int64
		var together float64 // pairs of positions in one document, in the first epoch
		first := v.Rows(Config{Length: c.Length, Seed: c.Seed, InOrder: c.InOrder, WholeDocuments: c.WholeDocuments, OneDocument: c.OneDocument, Epochs: 1})
		for {
			err := l.Next(b)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			rows, tokens = rows+1, tokens+int64(b.NonPadding)
			for _, i := range b.Segments {
				for _, j := range b.Segments {
					if i == j && rows <= first {
						together++
					}
				}
			}
		}
		if got, want := v.MeanDocument(c), int64(together/float64(first*int64(c.Length))); got != want {
			t.Fatalf("%+v: a position is in a document of %d tokens, by the loader's segments %d", c, got, want)
		}
		if got := v.Rows(c); got != rows || v.Tokens*c.Epochs != tokens {
			t.Fatalf("%+v: %d rows of %d tokens, the loader gives %d of %d", c, got, v.Tokens*c.Epochs, rows, tokens)
		}
		if reported == 0 || v.Longer(v.Longest) != 0 || v.Longest > 0 && v.Longer(v.Longest-1) == 0 {
			t.Errorf("%d were reported, the longest is %d", reported, v.Longest)
		}
	}
	if v, err := NewSurvey(made{4, 4}, nil); err != nil || v.LossTokens != 6 || v.Rows(Config{Length: 4}) != 0 {
		t.Errorf("%+v, %v: 2 times 3 tokens after a given one are in the loss, and without an end there is no count", v, err)
	}
}

func TestSurveyMeetsBadDocuments(t *testing.T) {
	text := strings.Repeat(`{"text":"a"}`+"\n", 300) + `{"text":"REFUSE"}` + "\n"
	r, err := OpenJSONL(file(t, text), JSONLOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := NewSurvey(Tokenize(r, byteTokens{}, TokenizeOptions{}), nil); err == nil || !strings.Contains(err.Error(), "document 300") {
		t.Errorf("%v", err)
	}
}

// Digests tell data apart by its tokens, their order and what is in the loss.
func TestDigest(t *testing.T) {
	digest := func(s Source) uint64 {
		t.Helper()
		v, err := NewSurvey(s, nil)
		if err != nil {
			t.Fatal(err)
		}
		return v.Digest
	}
	data := someLengths(1000, 5)
	seen := map[uint64]string{}
	for name, s := range map[string]Source{"all": data, "fewer": data[:999], "other lengths": someLengths(1000, 6), "all in the loss": whole{data}, "swapped": Concat(data[500:], data[:500])} {
		d := digest(s)
		if d == 0 || d != digest(s) || seen[d] != "" {
			t.Errorf("%s has the digest %d, as %s", name, d, seen[d])
		}
		seen[d] = name
	}
}

// whole is another source with all of its tokens in the loss.
type whole struct{ Source }

func (w whole) Document(i int64) (Document, error) {
	d, err := w.Source.Document(i)
	d.InLoss = nil
	return d, err
}

// listed are documents in memory.
type listed []Document

func (l listed) Len() int64                         { return int64(len(l)) }
func (l listed) Document(i int64) (Document, error) { return l[i], nil }

// Documents without a target are left out and counted; data that has no others is refused.
func TestNothingToLearn(t *testing.T) {
	learned := Document{Tokens: []int32{1, 2, 3}, InLoss: []Range{{2, 3}}}
	nothing := Document{Tokens: []int32{7, 8, 9}, InLoss: []Range{}}
	first := Document{Tokens: []int32{4, 5}, InLoss: []Range{{0, 1}}} // no token predicts the first
	v, err := NewSurvey(listed{nothing, learned, first, nothing}, nil)
	if err != nil || v.Documents != 4 || v.Unused != 3 || v.Tokens != 3 || v.LossTokens != 1 {
		t.Errorf("%+v, %v", v, err)
	}
	c := Config{Length: 4, InOrder: true, Epochs: 1}
	l, err := NewLoader(listed{nothing, learned, first, nothing}, c)
	if err != nil {
		t.Fatal(err)
	}
	b := NewBatch(2, 4)
	if err := l.Next(b); err != nil || !slices.Equal(b.Tokens, []int32{1, 2, 3, 0, 0, 0, 0, 0}) || v.Rows(c) != 1 {
		t.Errorf("%v, %d rows, %v", b.Tokens, v.Rows(c), err)
	}
	for _, epochs := range []int64{0, 1} {
		l, err := NewLoader(listed{nothing, first}, Config{Length: 4, Epochs: epochs})
		if err == nil {
			err = l.Next(b)
		}
		if !errors.Is(err, ErrNothing) {
			t.Errorf("%d epochs: %v", epochs, err)
		}
	}
}
