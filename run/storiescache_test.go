package run_test

import (
	"context"
	"math"
	"slices"
	"testing"

	"spillway"
	"spillway/dtype"
	"spillway/generate"
	"spillway/quant"
	"spillway/run"
)

// With a cache in f32 the text is transformers'. In 16 or 8 bits the probabilities that the
// model gives to that text stay close, by bounds that are several times what was seen; all
// but fp8 also write the same text.
func TestStoriesWithACache(t *testing.T) {
	s := openStories(t)
	for _, c := range []struct {
		name       string
		key, value dtype.Type
		same       bool    // the text is transformers'
		nats       float64 // by which the mean log-probability of a token may differ
	}{
		{"f32", dtype.F32, dtype.F32, true, 1e-6},
		{"f16", dtype.F16, dtype.F16, true, 1e-3},
		{"bf16", dtype.BF16, dtype.BF16, true, 5e-3},
		{"int8", quant.RowI8, quant.RowI8, true, 1e-2},
		{"fp8", quant.RowF8, quant.RowF8, false, 5e-2},
		{"keys int8, values fp8", quant.RowI8, quant.RowF8, false, 5e-2},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := spillway.Options{Task: spillway.Generate, Generation: run.Generation{Context: 80, Streams: 2, Key: c.key, Value: c.value}}
			job, _ := start(t, open(t, s.dir), o)
			e, err := generate.NewSession(job)
			if err != nil {
				t.Fatal(err)
			}
			free, given := continued(t, e, s, nil), continued(t, e, s, s.Greedy)
			if same := slices.Equal(free.text, s.Greedy); c.same && !same {
				t.Errorf("the text is %v, want %v", free.text, s.Greedy)
			}
			plain, _ := start(t, open(t, s.dir), spillway.Options{Task: spillway.Infer, Seq: 80})
			p, err := generate.NewPlain(plain)
			if err != nil {
				t.Fatal(err)
			}
			want := continued(t, p, s, s.Greedy)
			t.Logf("mean log-probability %.6f, without a cache %.6f, %+.2g", given.mean, want.mean, given.mean-want.mean)
			if math.Abs(given.mean-want.mean) > c.nats {
				t.Errorf("the mean log-probability of the text is %.6f, without a cache %.6f", given.mean, want.mean)
			}
		})
	}
}

type continuation struct {
	text []int32
	mean float64 // log-probability of the tokens after the prompt
}

// continued adds the likeliest tokens to the prompt, or those of a given text.
func continued(t *testing.T, e generate.Engine, s stories, given []int32) (c continuation) {
	t.Helper()
	q, err := e.Add(s.Prompt)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	for q.Len() < len(s.Greedy) {
		if err := e.Step(context.Background()); err != nil {
			t.Fatal(err)
		}
		logits := q.Logits()
		next := int32(slices.Index(logits, slices.Max(logits)))
		if given != nil {
			next = given[q.Len()]
		}
		var sum float64
		for _, x := range logits {
			sum += math.Exp(float64(x - logits[next]))
		}
		c.mean -= math.Log(sum) / float64(len(s.Greedy)-len(s.Prompt))
		if err := q.Append(next); err != nil {
			t.Fatal(err)
		}
	}
	c.text = slices.Clone(q.Tokens())
	return c
}
