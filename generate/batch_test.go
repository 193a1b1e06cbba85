package generate_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"testing"

	"spillway/generate"
	"spillway/run"
)

// requests are prompts of many lengths, greedy and sampled, one and two samples each.
func requests(n int) (list []generate.Request) {
	for i := range n {
		r := generate.Request{Prompt: text(uint64(i), 1+5*i%17), MaxNewTokens: 3 + i%6, Samples: 1}
		if i%3 > 0 {
			r.Sampler, r.Samples = generate.Sampler{Temperature: 1, Seed: uint64(i)}, i%3
		}
		list = append(list, r)
	}
	return list
}

// Texts of a batch are those that each request gives alone, bit for bit on a CPU, whatever
// the number of streams and of chunks; engines without steps of their own give them too.
func TestBatchesGiveTheTextsOfEach(t *testing.T) {
	list := requests(11)
	var want [][][]int32
	alone := session(t, "llama", run.Generation{Context: 32, Streams: 2})
	for _, r := range list {
		want = append(want, generated(t, alone, r))
	}
	for name, e := range map[string]generate.Engine{
		"two streams": session(t, "llama", run.Generation{Context: 32, Streams: 2, Chunk: 8}),
		"many":        session(t, "llama", run.Generation{Context: 32, Streams: 16}),
		"plain":       engines(t, "../testdata/reference/llama", 32, 4)["plain"],
	} {
		b, err := generate.NewBatch(e, nil, list)
		if err != nil {
			t.Fatal(name, err)
		}
		pieces := make([]int, len(list))
		for p, err := range b.All(context.Background()) {
			if err != nil {
				t.Fatal(name, err)
			}
			pieces[p.Request] += len(p.Tokens)
		}
		tokens := 0
		for i := range list {
			for j, r := range b.Results(i) {
				got := slices.Clone(list[i].Prompt)
				for _, token := range r.Tokens {
					got = append(got, token.ID)
				}
				if !slices.Equal(got, want[i][j]) {
					t.Errorf("%s: text %d of prompt %d is %v, alone %v", name, j, i, got, want[i][j])
				}
				tokens += len(r.Tokens)
				pieces[i] -= len(r.Tokens)
			}
		}
		if s := b.Statistics(); s.NewTokens != tokens || s.Prefill <= 0 || s.Decode <= 0 || slices.ContainsFunc(pieces, func(n int) bool { return n != 0 }) {
			t.Errorf("%s: %+v for %d tokens, pieces lack %v", name, s, tokens, pieces)
		}
		if _, err := e.Add([]int32{1}); err != nil { // nothing stayed behind
			t.Error(name, err)
		}
	}
}

// A batch that is cancelled leaves no sequence behind, and what cannot work is refused by the
// number of its prompt.
func TestBatchesEnd(t *testing.T) {
	s := session(t, "llama", run.Generation{Context: 32, Streams: 2})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	b, err := generate.NewBatch(s, nil, requests(6))
	if err != nil {
		t.Fatal(err)
	}
	var last error
	for _, err := range b.All(ctx) {
		if last = err; err == nil {
			cancel()
		}
	}
	if !errors.Is(last, context.Canceled) || b.Results(0)[0].End != generate.Cancelled {
		t.Errorf("%v, %+v", last, b.Results(0))
	}
	for range 2 {
		if _, err := s.Add([]int32{1}); err != nil {
			t.Error(err)
		}
	}
	bad := append(requests(2), generate.Request{Prompt: text(1, 40)})
	var long *generate.LengthError
	if _, err := generate.NewBatch(s, nil, bad); !errors.As(err, &long) {
		t.Errorf("a prompt of 40 tokens: %v", err)
	}
}

// Texts that nobody asks for again take no memory: after hundreds of prompts the heap is what it was after the first ones.
func TestForgottenTextsTakeNoMemory(t *testing.T) {
	const prompts, tokens, warm = 400, 24, 100
	e := session(t, "llama", run.Generation{Context: 32, Streams: 8})
	var list []generate.Request
	for i := range prompts {
		list = append(list, generate.Request{Prompt: text(uint64(i), 4), MaxNewTokens: tokens, Samples: 1, Logprobs: true, TopLogprobs: 5})
	}
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	for _, forget := range []bool{true, false} {
		b, err := generate.NewBatch(e, nil, list)
		if err != nil {
			t.Fatal(err)
		}
		ended, before := 0, int64(0)
		for p, err := range b.All(context.Background()) {
			if err != nil {
				t.Fatal(err)
			}
			if p.End == "" {
				if b.Forget(p.Request); b.Results(p.Request) == nil {
					t.Fatal("a text was forgotten before it ended")
				}
				continue
			}
			if forget {
				b.Forget(p.Request)
			}
			if ended++; ended == warm {
				before = heap()
			}
		}
		// What a token takes at least where it stays: itself, and five alternatives.
		const each = 40 + 5*16
		grown, stays := heap()-before, int64((prompts-warm)*tokens*each)
		if forget && grown > stays/4 || !forget && grown < stays/2 {
			t.Errorf("forget %v: the heap grew by %d bytes while texts of %d were made", forget, grown, stays)
		}
		if s := b.Statistics(); s.NewTokens != prompts*tokens || (b.Results(0) == nil) != forget {
			t.Errorf("forget %v: %+v", forget, s)
		}
	}
}
