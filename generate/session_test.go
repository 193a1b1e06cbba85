package generate_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"spillway"
	"spillway/dtype"
	"spillway/generate"
	"spillway/run"
)

// session starts an engine with a cache on a model of testdata/reference.
func session(t *testing.T, name string, g run.Generation, change ...func(*spillway.Options)) *generate.Session {
	t.Helper()
	o := spillway.Options{Task: spillway.Generate, Generation: g}
	for _, c := range change {
		c(&o)
	}
	s, err := generate.NewSession(start(t, "../testdata/reference/"+name, o))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// text is random tokens that the small models know.
func text(seed uint64, n int) []int32 {
	r := rand.New(rand.NewPCG(seed, 7))
	list := make([]int32, n)
	for i := range list {
		list[i] = int32(r.IntN(70))
	}
	return list
}

func step(t *testing.T, e generate.Engine) {
	t.Helper()
	if err := e.Step(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func add(t *testing.T, e generate.Engine, tokens []int32) generate.Sequence {
	t.Helper()
	q, err := e.Add(tokens)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// causal are the small models that can generate.
var causal = []string{"llama", "gpt2", "mistral", "qwen2", "qwen3"}

// With the cache, logits are those of the whole text computed at once, up to rounding.
func TestSessionIsPlain(t *testing.T) {
	const context, length = 32, 30
	for _, name := range causal {
		t.Run(name, func(t *testing.T) {
			s := session(t, name, run.Generation{Context: context, Streams: 2, Chunk: 16, Page: 4})
			p, err := generate.NewPlain(start(t, "../testdata/reference/"+name, spillway.Options{Task: spillway.Infer, Seq: context}))
			must(t, err)
			tokens := text(1, length)
			a, b := add(t, s, tokens[:19]), add(t, p, tokens[:19])
			for n := 19; ; n++ {
				step(t, s)
				step(t, p)
				near(t, fmt.Sprintf("after %d tokens", n), a.Logits(), b.Logits(), 2e-5)
				if n == length {
					return
				}
				must(t, errors.Join(a.Append(tokens[n]), b.Append(tokens[n])))
			}
		})
	}
}

// near compares numbers within a share of the largest.
func near(t *testing.T, what string, got, want []float32, within float64) {
	t.Helper()
	var top float64
	for _, w := range want {
		top = max(top, math.Abs(float64(w)))
	}
	if len(got) != len(want) || top == 0 {
		t.Fatalf("%s: %d numbers, want %d up to %g", what, len(got), len(want), top)
	}
	for i := range want {
		if !(math.Abs(float64(got[i]-want[i])) <= within*top) {
			t.Fatalf("%s: number %d is %v, want %v", what, i, got[i], want[i])
		}
	}
}

// A sequence's logits are the same bits however its text is cut into chunks and pages, whatever other
// sequences are computed with it, and however they join, leave, fork and are truncated.
func TestSessionsGiveTheSameBits(t *testing.T) {
	const context, length, texts = 32, 30, 12
	quantized := "../../gguf/testdata/qwen3-q8_0.gguf" // in bf16 multiplied with integers
	for _, name := range append(slices.Clone(causal), quantized) {
		for _, precision := range []dtype.Type{dtype.F32, dtype.BF16} {
			t.Run(fmt.Sprint(filepath.Base(name), " ", precision), func(t *testing.T) {
				in := func(o *spillway.Options) { o.Precision = precision }
				want := oneByOne(t, session(t, name, run.Generation{Context: context, Streams: 1, Chunk: 1}, in), texts, length)
				for _, g := range []run.Generation{
					{Context: context, Streams: 1, Chunk: 32, Page: 64}, {Context: context, Streams: 8, Chunk: 32, Page: 4}, {Context: context, Streams: 8, Chunk: 5, Page: 3}, {Context: context, Streams: 3, Chunk: 17, Page: 7},
				} {
					mingle(t, session(t, name, g, in), want, length, 11)
				}
			})
		}
	}
}

// oneByOne are the logits of texts, by text and length, computed alone and token by token.
func oneByOne(t *testing.T, s *generate.Session, texts, length int) [][][]float32 {
	t.Helper()
	want := make([][][]float32, texts)
	for i := range want {
		want[i] = make([][]float32, length+1)
		tokens := text(uint64(i), length)
		q := add(t, s, tokens[:1])
		for n := 1; ; n++ {
			step(t, s)
			want[i][n] = slices.Clone(q.Logits())
			if n == length {
				break
			}
			must(t, q.Append(tokens[n]))
		}
		must(t, q.Close())
	}
	return want
}

// mingle lets sequences join, grow, fork, be truncated and leave at random, and compares
// every logit with what it is alone.
func mingle(t *testing.T, s *generate.Session, want [][][]float32, length int, seed uint64) {
	t.Helper()
	type open struct {
		generate.Sequence
		text int
	}
	r := rand.New(rand.NewPCG(seed, uint64(s.Streams())))
	var all []open
	for range 60 {
		switch n := len(all); {
		case n < s.Streams() && (n == 0 || r.IntN(3) == 0):
			i := r.IntN(len(want))
			all = append(all, open{add(t, s, text(uint64(i), length)[:1+r.IntN(length)]), i})
		case n < s.Streams() && r.IntN(6) == 0:
			q := all[r.IntN(n)]
			f, err := q.Fork()
			must(t, err)
			all = append(all, open{f, q.text})
		case r.IntN(8) == 0:
			i := r.IntN(n)
			must(t, all[i].Close())
			all = slices.Delete(all, i, i+1)
		case r.IntN(5) == 0:
			q := all[r.IntN(n)]
			must(t, q.Truncate(r.IntN(q.Len()+1)))
			if q.Ready() {
				t.Fatal("logits of a truncated text are ready")
			}
		}
		for _, q := range all {
			if q.Len() < length && r.IntN(4) > 0 {
				must(t, q.Append(text(uint64(q.text), length)[q.Len():][:1+r.IntN(min(3, length-q.Len()))]...))
			}
		}
		if r.IntN(4) == 0 { // some of what waits
			_, err := s.Advance(context.Background())
			must(t, err)
		} else {
			step(t, s)
		}
		for _, q := range all {
			if q.Ready() && !slices.Equal(q.Logits(), want[q.text][q.Len()]) {
				t.Fatalf("%d streams: text %d after %d tokens has other logits than alone", s.Streams(), q.text, q.Len())
			}
		}
	}
	must(t, s.Close())
}
