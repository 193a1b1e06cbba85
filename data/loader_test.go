package data

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// made is a source of invented documents: token 1000·i + k is token k of document i.
type made []int // lengths

func (m made) Len() int64 { return int64(len(m)) }

func (m made) Document(i int64) (Document, error) {
	d := Document{Tokens: make([]int32, m[i]), InLoss: []Range{{m[i] / 3, m[i]}}}
	for k := range d.Tokens {
		d.Tokens[k] = int32(1000*i) + int32(k)
	}
	return d, nil
}

func someLengths(n int, seed uint64) made {
	r := rand.New(rand.NewPCG(seed, 0))
	m := make(made, n)
	for i := range m {
		m[i] = r.IntN(40) // some are empty, some longer than a row
	}
	return m
}

func newLoader(t *testing.T, s Source, c Config) *Loader {
	t.Helper()
	l, err := NewLoader(s, c)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func next(t *testing.T, l *Loader, rows int) *Batch {
	t.Helper()
	b := NewBatch(rows, l.config.Length)
	if err := l.Next(b); err != nil {
		t.Fatal(err)
	}
	return b
}

// clip is rows lo to hi of a batch, to compare.
func clip(b *Batch, lo, hi int) string {
	lo, hi = lo*b.Length, hi*b.Length
	return fmt.Sprint(b.Tokens[lo:hi], b.Targets[lo:hi], b.Positions[lo:hi], b.Segments[lo:hi])
}

func TestBatchByHand(t *testing.T) {
	// Documents of 3, 4 and 1 tokens with prompts of 1, 1 and 0 into rows of 5. The last has
	// nothing in the loss and is left out.
	l := newLoader(t, made{3, 4, 1}, Config{Length: 5, InOrder: true, Epochs: 1})
	b := next(t, l, 3)
	const x, p = Ignored, Padding
	for name, c := range map[string]struct{ got, want []int32 }{
		"tokens":    {b.Tokens, []int32{0, 1, 2, 1000, 1001, 1002, 1003, 0, 0, 0, 0, 0, 0, 0, 0}},
		"targets":   {b.Targets, []int32{1, 2, x, 1001, x, 1003, x, x, x, x, x, x, x, x, x}},
		"positions": {b.Positions, []int32{0, 1, 2, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0}},
		"segments":  {b.Segments, []int32{0, 0, 0, 1, 1, 0, 0, p, p, p, p, p, p, p, p}},
	} {
		if !slices.Equal(c.got, c.want) {
			t.Errorf("%s\n got %v\nwant %v", name, c.got, c.want)
		}
	}
	if b.LossTokens != 4 || b.NonPadding != 7 || b.First != 0 {
		t.Errorf("%d counted, %d real, first %d", b.LossTokens, b.NonPadding, b.First)
	}
	if err := l.Next(b); !errors.Is(err, io.EOF) {
		t.Errorf("after the last row: %v", err)
	}
	whole := next(t, newLoader(t, made{3, 4, 1}, Config{Length: 5, InOrder: true, WholeDocuments: true, Epochs: 1}), 2)
	if want := []int32{0, 1, 2, 0, 0, 1000, 1001, 1002, 1003, 0}; !slices.Equal(whole.Tokens, want) {
		t.Errorf("kept whole: %v, want %v", whole.Tokens, want)
	}
	if want := []int32{0, 0, 0, p, p, 0, 0, 0, 0, p}; !slices.Equal(whole.Segments, want) {
		t.Errorf("kept whole: segments %v, want %v", whole.Segments, want)
	}
}

func TestPromptsAreNotLearned(t *testing.T) {
	// 9 tokens, 3 of them prompt: the targets 1000·0+3 to 8 are in the loss, 1 and 2 are not.
	b := next(t, newLoader(t, made{9}, Config{Length: 9, InOrder: true}), 1)
	if want := []int32{Ignored, Ignored, 3, 4, 5, 6, 7, 8, Ignored}; !slices.Equal(b.Targets, want) || b.LossTokens != 6 {
		t.Errorf("targets %v, %d counted", b.Targets, b.LossTokens)
	}
	// Cut at 2 the rest of the prompt is in the next row, and still not in the loss.
	b = next(t, newLoader(t, made{9}, Config{Length: 2, InOrder: true}), 2)
	if want := []int32{Ignored, Ignored, 3, Ignored}; !slices.Equal(b.Targets, want) {
		t.Errorf("cut: targets %v", b.Targets)
	}
}

// An epoch holds every token once, but for documents without a target, and every target is the next token of the
// same document.
func TestPackingConservesTokens(t *testing.T) {
	for _, whole := range []bool{false, true} {
		for _, length := range []int{2, 3, 7, 16, 100} {
			source := someLengths(60, 9)
			l := newLoader(t, source, Config{Length: length, Seed: 5, WholeDocuments: whole, Epochs: 1})
			seen := map[int32]int{}
			total := 0
			b := NewBatch(3, length)
			for l.Next(b) == nil {
				counted, real := 0, 0
				for i, token := range b.Tokens {
					if b.Segments[i] == Padding {
						continue
					}
					real++
					seen[token]++
					if b.Targets[i] == Ignored {
						continue
					}
					counted++
					same := i%length+1 < length && b.Segments[i+1] == b.Segments[i] && b.Positions[i+1] == b.Positions[i]+1
					if b.Targets[i] != token+1 || !same || b.Tokens[i+1] != token+1 {
						t.Fatalf("whole %v, length %d: the target of %d is %d", whole, length, token, b.Targets[i])
					}
				}
				if counted != b.LossTokens || real != b.NonPadding {
					t.Fatalf("counted %d and %d real, the batch says %d and %d", counted, real, b.LossTokens, b.NonPadding)
				}
			}
			for _, n := range source {
				if n > 1 { // one token alone has nothing in the loss
					total += n
				}
			}
			if len(seen) != total {
				t.Errorf("whole %v, length %d: %d different tokens, there are %d", whole, length, len(seen), total)
			}
			for token, n := range seen {
				if n != 1 {
					t.Errorf("token %d came %d times", token, n)
				}
			}
		}
	}
}

func TestWholeDocumentsAreNotCut(t *testing.T) {
	source := someLengths(60, 9)
	const length = 64 // longer than any document
	l := newLoader(t, source, Config{Length: length, WholeDocuments: true, Epochs: 1})
	b := NewBatch(1, length)
	for l.Next(b) == nil {
		for i := range length {
			last := i+1 == length || b.Segments[i+1] != b.Segments[i]
			if b.Segments[i] != Padding && last && int(b.Positions[i])+1 != source[b.Tokens[i]/1000] {
				t.Fatalf("document %d of %d tokens was cut after %d", b.Tokens[i]/1000, source[b.Tokens[i]/1000], b.Positions[i]+1)
			}
		}
	}
}

// The stream is the same for every batch size and number of ranks.
func TestRowsDoNotDependOnBatchesOrRanks(t *testing.T) {
	const length, rows = 16, 48
	source := someLengths(30, 3)
	straight := next(t, newLoader(t, source, Config{Length: length, Seed: 1}), rows)
	for _, size := range []int{1, 2, 3, 4, 8, 12} {
		for _, world := range []int{1, 2, 4} {
			if rows%(size*world) != 0 {
				continue
			}
			for rank := range world {
				l := newLoader(t, source, Config{Length: length, Seed: 1, Rank: rank, World: world})
				for range rows / (size * world) {
					b := next(t, l, size)
					if got, want := clip(b, 0, size), clip(straight, int(b.First), int(b.First)+size); got != want {
						t.Fatalf("size %d, rank %d of %d, row %d:\n got %s\nwant %s", size, rank, world, b.First, got, want)
					}
				}
			}
		}
	}
}

func TestResumeEqualsStraightRun(t *testing.T) {
	const length, batches = 16, 150 // several epochs
	source := someLengths(25, 8)
	for _, config := range []Config{{Length: length, Seed: 4}, {Length: length, Seed: 4, WholeDocuments: true}, {Length: length, Seed: 4, OneDocument: true}, {Length: length, Seed: 4, World: 2, Rank: 1}} {
		l := newLoader(t, source, config)
		positions := []Position{l.Position()}
		var straight []string
		for range batches {
			straight = append(straight, clip(next(t, l, 1), 0, 1))
			positions = append(positions, l.Position())
		}
		if l.Position().Epoch < 2 {
			t.Fatalf("only %d epochs", l.Position().Epoch)
		}
		for at, p := range positions[:batches] {
			text, err := json.Marshal(p)
			if err != nil {
				t.Fatal(err)
			}
			var back Position
			if err := json.Unmarshal(text, &back); err != nil {
				t.Fatal(err)
			}
			again := newLoader(t, source, config)
			if err := again.Seek(back); err != nil {
				t.Fatal(err)
			}
			for k := at; k < min(at+3, batches); k++ {
				if got := clip(next(t, again, 1), 0, 1); got != straight[k] {
					t.Fatalf("resumed at %d, batch %d:\n got %s\nwant %s", at, k, got, straight[k])
				}
			}
		}
	}
}

func TestSeekRefusesAnotherStream(t *testing.T) {
	source := made{5, 6, 7}
	l := newLoader(t, source, Config{Length: 4, Seed: 1})
	good := l.Position()
	for name, damage := range map[string]func(*Position){
		"other data":      func(p *Position) { p.Documents = 4 },
		"other seed":      func(p *Position) { p.Seed = 2 },
		"negative":        func(p *Position) { p.Row = -1 },
		"past the end":    func(p *Position) { p.Document = 4 },
		"offset past end": func(p *Position) { p.Document, p.Offset = 3, 1 },
		"long offset":     func(p *Position) { p.Offset = 100 },
	} {
		p := good
		damage(&p)
		if err := l.Seek(p); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestEpochsAreShuffledDifferently(t *testing.T) {
	source := someLengths(50, 2)
	l := newLoader(t, source, Config{Length: 32, Seed: 1, Epochs: 2})
	first := map[int64][]int32{}
	b := NewBatch(1, 32)
	for {
		epoch := l.Position().Epoch
		if l.Position().Document == l.Position().Documents {
			epoch++
		}
		if l.Next(b) != nil {
			break
		}
		if first[epoch] == nil {
			first[epoch] = slices.Clone(b.Tokens)
		}
	}
	if len(first) != 2 || slices.Equal(first[0], first[1]) {
		t.Errorf("epochs begin %v", first)
	}
}

func TestEmptyDataIsAnError(t *testing.T) {
	if _, err := NewLoader(made{}, Config{Length: 8}); err == nil {
		t.Error("no documents: accepted")
	}
	for _, epochs := range []int64{0, 1} {
		l := newLoader(t, made{0, 0, 0}, Config{Length: 8, Epochs: epochs})
		if err := l.Next(NewBatch(1, 8)); !errors.Is(err, ErrNothing) {
			t.Errorf("%d epochs of empty documents: %v", epochs, err)
		}
	}
	for _, c := range []Config{{Length: 1}, {Length: 8, Rank: 1}, {Length: 8, Rank: -1, World: 2}} {
		if _, err := NewLoader(made{3}, c); err == nil {
			t.Errorf("%+v: accepted", c)
		}
	}
	l := newLoader(t, made{3}, Config{Length: 8})
	if l.Next(NewBatch(1, 9)) == nil {
		t.Error("a batch of another length was filled")
	}
}

type broken struct{ made }

func (b broken) Document(i int64) (Document, error) {
	if i == 2 {
		return Document{}, errors.New("the disk is gone")
	}
	return b.made.Document(i)
}

func TestLoaderReportsErrors(t *testing.T) {
	l := newLoader(t, broken{made{5, 5, 5}}, Config{Length: 4, InOrder: true})
	var err error
	for range 5 {
		if err = l.Next(NewBatch(1, 4)); err != nil {
			break
		}
	}
	if err == nil || errors.Is(err, io.EOF) {
		t.Errorf("a source that fails: %v", err)
	}
}

func TestSplitSharesNothing(t *testing.T) {
	source := someLengths(1000, 1)
	for i := range source {
		source[i] = 1
	}
	train, eval, err := Split(source, 0.1, 7)
	if err != nil || train.Len() != 900 || eval.Len() != 100 {
		t.Fatalf("%v: %d and %d", err, train.Len(), eval.Len())
	}
	seen := map[int32]bool{}
	for _, part := range []Source{train, eval} {
		for d, err := range sourceDocuments(part) {
			if err != nil || seen[d.Tokens[0]] {
				t.Fatalf("%v %v", d, err)
			}
			seen[d.Tokens[0]] = true
		}
	}
	again, _, _ := Split(source, 0.1, 7)
	other, _, _ := Split(source, 0.1, 8)
	a, _ := train.Document(5)
	b, _ := again.Document(5)
	c, _ := other.Document(5)
	if a.Tokens[0] != b.Tokens[0] || a.Tokens[0] == c.Tokens[0] {
		t.Errorf("the split of one seed: %v and %v; of another: %v", a, b, c)
	}
	if _, err := train.Document(900); err == nil {
		t.Error("document 900 of 900 was read")
	}
	if _, _, err := Split(source, 1.5, 0); err == nil {
		t.Error("a fraction of 1.5 was accepted")
	}
}

func TestConcat(t *testing.T) {
	c := Concat(made{2, 3}, made{}, made{4})
	if c.Len() != 3 || Concat().Len() != 0 {
		t.Fatalf("%d documents", c.Len())
	}
	for i, want := range []int{2, 3, 4} {
		if d, err := c.Document(int64(i)); err != nil || len(d.Tokens) != want {
			t.Errorf("document %d: %v, %v", i, d, err)
		}
	}
	if _, err := c.Document(3); err == nil {
		t.Error("document 3 of 3 was read")
	}
}

func BenchmarkLoader(b *testing.B) {
	l, err := NewLoader(someLengths(10000, 1), Config{Length: 2048})
	if err != nil {
		b.Fatal(err)
	}
	batch := NewBatch(4, 2048)
	b.SetBytes(int64(4 * len(batch.Tokens)))
	for b.Loop() {
		if err := l.Next(batch); err != nil {
			b.Fatal(err)
		}
	}
}

// A single text is cut: its beginning is trained on, its end evaluated on, and no token is in both. A conversation is not
// cut, nor a text of which a part would have nothing to predict.
func TestCutOfOneText(t *testing.T) {
	text := plainText{made{20}}
	whole, _ := text.Document(0)
	train, eval, ok, err := Cut(text, 0.25)
	if err != nil || !ok || train.Len() != 1 || eval.Len() != 1 {
		t.Fatal(ok, err)
	}
	a, _ := train.Document(0)
	b, _ := eval.Document(0)
	if !slices.Equal(slices.Concat(a.Tokens, b.Tokens), whole.Tokens) || len(b.Tokens) != 5 {
		t.Errorf("%v and %v of %v", a.Tokens, b.Tokens, whole.Tokens)
	}
	if _, _, _, err := Cut(text, 0.05); err == nil || !strings.Contains(err.Error(), "19 are left to train on and 1 to evaluate on") {
		t.Error(err)
	}
	if _, _, ok, err := Cut(made{20}, 0.25); ok || err != nil {
		t.Error(ok, err)
	}
}

// plainText has all tokens in the loss.
type plainText struct{ made }

func (p plainText) Document(i int64) (Document, error) {
	d, err := p.made.Document(i)
	d.InLoss = nil
	return d, err
}

// Every document begins a row; the rest of it, and of the last row of a long document, is padding.
func TestOneDocumentInARow(t *testing.T) {
	b := next(t, newLoader(t, made{3, 0, 7, 2}, Config{Length: 5, InOrder: true, OneDocument: true, Epochs: 1}), 4)
	if want := []int32{0, 1, 2, 0, 0, 2000, 2001, 2002, 2003, 2004, 2005, 2006, 0, 0, 0, 3000, 3001, 0, 0, 0}; !slices.Equal(b.Tokens, want) {
		t.Errorf("%v, want %v", b.Tokens, want)
	}
	if b.NonPadding != 12 {
		t.Errorf("%d tokens", b.NonPadding)
	}
}
