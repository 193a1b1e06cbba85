package inference

import (
	"context"
	"slices"
	"testing"

	"spillway/generate"
	"spillway/internal/reference"
)

// Of a model that was really trained more tokens come of a step with a tree of guesses than with one continuation, guessed by the
// model in 4 bits, greedy and sampled. The text is that without guesses, and memory is as planned.
func TestTreesOfGuesses(t *testing.T) {
	dir := reference.Asset(t, "stories260k")
	for _, temperature := range []float64{0, 1} {
		r := generate.Request{Prompt: []int32{1, 403, 407, 261, 378}, MaxNewTokens: 250, Sampler: generate.Sampler{Temperature: temperature, Seed: 3}}
		want, _ := guessedWith(t, dir, Size{Context: 256}, r)
		var chain float64
		for _, branches := range []int64{1, 4} {
			got, s := guessedWith(t, dir, Size{Context: 256, Drafts: 7, Branches: branches - 1}, r)
			t.Logf("temperature %v, %d branches: %.2f tokens a step", temperature, branches, s.PerStep())
			if !slices.Equal(got, want) {
				t.Errorf("temperature %v, %d branches: %v, want %v", temperature, branches, got, want)
			}
			if branches == 1 {
				chain = s.PerStep()
			} else if s.PerStep() < 1.1*chain || s.PerPass() <= 1 {
				t.Errorf("temperature %v: %.2f tokens a step with %.1f branches, %.2f with one", temperature, s.PerStep(), s.PerPass(), chain)
			}
		}
	}
}

// guessedWith generates with the model in 4 bits as drafter, where the size has guesses, and rows of a step that take no time, as
// where weights stream.
func guessedWith(t *testing.T, dir string, size Size, r generate.Request) (tokens []int32, s generate.Statistics) {
	t.Helper()
	ctx := context.Background()
	m, err := Open(Settings{Model: dir, Device: "cpu"})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var d *Draft
	if size.Drafts > 0 {
		if d, err = m.StartDraft(ctx, DraftSelf, size); err != nil {
			t.Fatal(err)
		}
		defer d.Close()
	}
	e, err := m.Start(ctx, size)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if r.Speculation = d.Speculation(e); r.Speculation != nil {
		r.Speculation.Seconds, r.Speculation.DraftSeconds, r.Speculation.BranchSeconds = nil, nil, 0
	}
	g, err := generate.New(e, nil, r)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range g.All(ctx) {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, token := range g.Results()[0].Tokens {
		tokens = append(tokens, token.ID)
	}
	for _, e := range []*Engine{e, d.engine()} {
		if e != nil && e.MeasuredPeak() != e.PredictedPeak() {
			t.Errorf("measured %d bytes, predicted %d", e.MeasuredPeak(), e.PredictedPeak())
		}
	}
	return tokens, g.Statistics()
}

// engine is that of the model that guesses; nil for none.
func (d *Draft) engine() *Engine {
	if d == nil {
		return nil
	}
	return d.Engine
}
