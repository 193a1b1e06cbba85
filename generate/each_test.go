package generate_test

import (
	"context"
	"slices"
	"testing"

	"spillway/generate"
	"spillway/run"
)

// steps counts the steps of a session.
type steps struct {
	*generate.Session
	count int
}

func (s *steps) Step(ctx context.Context) error {
	for {
		more, err := s.Advance(ctx)
		if s.count++; err != nil || !more {
			return err
		}
	}
}

// Log-probabilities of a prompt are the same bits however many tokens are computed in a step, in
// as few steps as the plan's outputs allow, and next to other texts.
func TestPromptLogprobsInChunks(t *testing.T) {
	const length = 45
	var want []float64
	for _, c := range []struct {
		g     run.Generation
		steps int
	}{
		{run.Generation{Context: 64}, length},
		{run.Generation{Context: 64, Outputs: 8}, 6},
		{run.Generation{Context: 64, Outputs: 8, Streams: 3, Chunk: 16}, 6},
		{run.Generation{Context: 64, Outputs: 32, Streams: 2}, 2},
		{run.Generation{Context: 64, Streams: 16}, 3},
	} {
		s := &steps{Session: session(t, "llama", c.g)}
		if c.g.Streams > 1 { // another text, whose prompt waits too
			if _, err := s.Add(text(9, 20)); err != nil {
				t.Fatal(err)
			}
		}
		g, err := generate.New(s, nil, generate.Request{Prompt: text(3, length), MaxNewTokens: 2, PromptLogprobs: true, Logprobs: true, TopLogprobs: 2})
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range g.All(context.Background()) {
			if err != nil {
				t.Fatal(err)
			}
		}
		var got []float64
		for _, token := range append(slices.Clone(g.Prompt()), g.Results()[0].Tokens...) {
			got = append(got, token.Logprob)
			for _, a := range token.Top {
				got = append(got, a.Logprob)
			}
		}
		if want == nil {
			want = got
		}
		if !slices.Equal(got, want) || len(g.Prompt()) != length {
			t.Errorf("%+v: %d of a prompt, %v, want %v", c.g, len(g.Prompt()), got[:4], want[:4])
		}
		if most := c.steps + 3; s.count > most { // two more tokens, and the other text's prompt
			t.Errorf("%+v: %d steps, want at most %d", c.g, s.count, most)
		}
	}
}
