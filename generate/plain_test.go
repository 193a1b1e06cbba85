package generate_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"spillway"
	"spillway/generate"
)

// tell starts a small model of random weights with a window of seq positions.
func tell(t *testing.T, o spillway.Options) *spillway.Run {
	t.Helper()
	return start(t, "../testdata/reference/llama", o)
}

// plain is an engine on a small model with a context of seq tokens.
func plain(t *testing.T, seq int64) *generate.Plain {
	t.Helper()
	e, err := generate.NewPlain(tell(t, spillway.Options{Task: spillway.Infer, Seq: seq}))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// logits are those after a text.
func logits(t *testing.T, e generate.Engine, text []int32) []float32 {
	t.Helper()
	q, err := e.Add(text)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Step(context.Background()); err != nil {
		t.Fatal(err)
	}
	list := slices.Clone(q.Logits())
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	return list
}

// finished generates the texts of a request to their ends.
func finished(t *testing.T, e generate.Engine, r generate.Request) *generate.Generation {
	t.Helper()
	g, err := generate.New(e, nil, r)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range g.All(context.Background()) {
		if err != nil {
			t.Fatal(err)
		}
	}
	return g
}

// generated are the texts of a request, prompt included.
func generated(t *testing.T, e generate.Engine, r generate.Request) [][]int32 {
	t.Helper()
	return texts(finished(t, e, r), r.Prompt)
}

// texts are those that g generated after a prompt, prompt included.
func texts(g *generate.Generation, prompt []int32) (list [][]int32) {
	for _, result := range g.Results() {
		text := slices.Clone(prompt)
		for _, token := range result.Tokens {
			text = append(text, token.ID)
		}
		list = append(list, text)
	}
	return list
}

var prompt = []int32{5, 17, 3, 80}

// Padding after the text changes nothing: the logits are those of a window that just fits.
func TestPaddingIsHarmless(t *testing.T) {
	want, got := logits(t, plain(t, int64(len(prompt))), prompt), logits(t, plain(t, 24), prompt)
	var top float64
	for _, w := range want {
		top = max(top, math.Abs(float64(w)))
	}
	for i := range want {
		if math.Abs(float64(got[i]-want[i])) > 1e-6*top {
			t.Fatalf("logit %d is %v in a wide window, %v in a tight one", i, got[i], want[i])
		}
	}
}

func TestTextsEnd(t *testing.T) {
	e, err := generate.NewPlain(tell(t, spillway.Options{Task: spillway.Infer, Seq: 16, Packed: true}))
	if err != nil {
		t.Fatal(err)
	}
	free := generated(t, e, generate.Request{Prompt: prompt, MaxNewTokens: 6})[0]
	at := slices.Index(free[4:], free[6]) + 4
	if got := generated(t, e, generate.Request{Prompt: prompt, MaxNewTokens: 6, StopTokens: []int32{free[6]}})[0]; !slices.Equal(got, free[:at]) {
		t.Errorf("stopping at token %d the text is %v, want %v", free[6], got, free[:at])
	}
	if full := generated(t, e, generate.Request{Prompt: prompt})[0]; len(full) != e.Context() || !slices.Equal(full[:10], free) {
		t.Errorf("without a limit the text has %d tokens of %d", len(full), e.Context())
	}
}

// One seed gives one text, and samples of a request are different texts.
func TestSampledTextsRepeat(t *testing.T) {
	e := plain(t, 16)
	texts := func(seed uint64) [][]int32 {
		return generated(t, e, generate.Request{Prompt: prompt, MaxNewTokens: 10, Samples: 2, Sampler: generate.Sampler{Temperature: 1.5, TopK: 40, Seed: seed}})
	}
	one, again, two := texts(1), texts(1), texts(2)
	if !slices.Equal(one[0], again[0]) || !slices.Equal(one[1], again[1]) {
		t.Error("one seed gave two texts")
	}
	if slices.Equal(one[0], two[0]) || slices.Equal(one[0], one[1]) {
		t.Error("two seeds, or two samples, gave one text")
	}
	alone := generated(t, e, generate.Request{Prompt: prompt, MaxNewTokens: 10, Sampler: generate.Sampler{Temperature: 1.5, TopK: 40, Seed: 1}})
	if !slices.Equal(alone[0], one[0]) {
		t.Error("a text depends on how many are made with it")
	}
}

// A sequence that is truncated and extended is as good as a new one.
func TestSequencesChange(t *testing.T) {
	e := plain(t, 16)
	q, err := e.Add(prompt)
	if err != nil {
		t.Fatal(err)
	}
	step := func() {
		t.Helper()
		if err := e.Step(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	step()
	fork, err := q.Fork()
	if err != nil {
		t.Fatal(err)
	}
	if !fork.Ready() || !slices.Equal(fork.Logits(), q.Logits()) {
		t.Error("a fork has other logits")
	}
	other := []int32{5, 17, 9, 2, 8}
	reused, err := generate.Extend(q, other)
	if err != nil || reused != 2 {
		t.Fatalf("%d tokens reused, %v", reused, err)
	}
	step()
	if !slices.Equal(q.Logits(), logits(t, e, other)) || !slices.Equal(q.Tokens(), other) {
		t.Error("an extended sequence has other logits than a new one")
	}
	if !slices.Equal(fork.Logits(), logits(t, e, prompt)) {
		t.Error("a fork changed with the sequence it was made from")
	}
	// The same prompt again: its last token is computed, for its logits.
	if reused, err = generate.Extend(q, other); err != nil || reused != 4 || q.Ready() {
		t.Errorf("%d tokens reused, ready %v, %v", reused, q.Ready(), err)
	}
}

func TestRequestsThatCannotWork(t *testing.T) {
	e := plain(t, 8)
	for name, c := range map[string]struct {
		r    generate.Request
		says string
	}{
		"prompt":      {generate.Request{}, "empty prompt"},
		"sampler":     {generate.Request{Prompt: prompt, Sampler: generate.Sampler{TopK: -1}}, "top-k -1"},
		"context":     {generate.Request{Prompt: prompt, MaxNewTokens: 5}, "the prompt has 4 tokens and 5 more are wanted, together 9; the context is 8: give --context 9"},
		"full prompt": {generate.Request{Prompt: make([]int32, 8)}, "the context is 8"},
		"samples":     {generate.Request{Prompt: prompt, Samples: 2}, "the same text"},
		"stops":       {generate.Request{Prompt: prompt, Stop: []string{"x"}}, "need a tokenizer"},
		"top":         {generate.Request{Prompt: prompt, TopLogprobs: 2}, "ask for both"},
		"beams":       {generate.Request{Prompt: prompt, Beams: &generate.BeamSearch{}}, "0 beams"},
		"few beams":   {generate.Request{Prompt: prompt, Samples: 3, Beams: &generate.BeamSearch{Count: 2}}, "3 texts are wanted of 2 beams"},
		"hot beams":   {generate.Request{Prompt: prompt, Sampler: generate.Sampler{Temperature: 1}, Beams: &generate.BeamSearch{Count: 2}}, "does not sample"},
	} {
		if _, err := generate.New(e, nil, c.r); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, o := range map[string]spillway.Options{
		"plan the task infer": {Task: spillway.Eval, Seq: 8},
		"2 sequences":         {Task: spillway.Infer, Seq: 8, MicroBatchSize: 2},
	} {
		if _, err := generate.NewPlain(tell(t, o)); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	g, err := generate.New(e, nil, generate.Request{Prompt: []int32{5000}})
	if err != nil {
		t.Fatal(err)
	}
	for _, err = range g.All(context.Background()) {
	}
	if err == nil {
		t.Error("a token outside of the vocabulary was accepted")
	}
}

// When the context is done the text so far is there, and nothing is left in the engine.
func TestGenerationIsCancelled(t *testing.T) {
	e := plain(t, 64)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	g, err := generate.New(e, nil, generate.Request{Prompt: prompt})
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for piece, err := range g.All(ctx) {
		if err != nil {
			if !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			continue
		}
		if seen += len(piece.Tokens); seen == 3 {
			cancel()
		}
	}
	r := g.Results()[0]
	if seen < 3 || seen > 4 || len(r.Tokens) != seen || r.End != generate.Cancelled {
		t.Errorf("%d tokens, %d in the result, which ended by %q", seen, len(r.Tokens), r.End)
	}
}

// The log-probabilities of a prompt are those of its tokens one by one, and those of the
// text sum to that of the text as a prompt.
func TestLogprobs(t *testing.T) {
	e := plain(t, 16)
	first := finished(t, e, generate.Request{Prompt: prompt, MaxNewTokens: 5, Logprobs: true, TopLogprobs: 3})
	text := slices.Clone(prompt)
	for _, token := range first.Results()[0].Tokens {
		if token.Top[0].ID != token.ID || token.Top[0].Logprob != token.Logprob || token.Top[1].Logprob > token.Logprob || len(token.Top) != 3 {
			t.Errorf("the greedy token %d is not the most likely of %v", token.ID, token.Top)
		}
		text = append(text, token.ID)
	}
	whole := finished(t, e, generate.Request{Prompt: text, MaxNewTokens: 1, PromptLogprobs: true}).Prompt()
	if len(whole) != len(text) {
		t.Fatalf("%d tokens of the prompt", len(whole))
	}
	for i, token := range first.Results()[0].Tokens {
		if again := whole[len(prompt)+i]; again.Logprob != token.Logprob {
			t.Errorf("token %d has log-probability %v when it is generated, %v in a prompt", i, token.Logprob, again.Logprob)
		}
	}
	all := logits(t, e, prompt[:2])
	var sum float64
	for _, l := range all {
		sum += math.Exp(float64(l))
	}
	if want := float64(all[prompt[2]]) - math.Log(sum); math.Abs(whole[2].Logprob-want) > 1e-6 {
		t.Errorf("the third token has log-probability %v, want %v", whole[2].Logprob, want)
	}
}
