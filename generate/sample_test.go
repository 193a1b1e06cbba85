package generate

import (
	"math"
	"testing"
)

// share is how often each token is picked in many places of a text.
func share(s Sampler, logits []float32) []float64 {
	const n = 40_000
	counts := make([]float64, len(logits))
	for place := range uint64(n) {
		counts[s.Pick(logits, place)] += 1.0 / n
	}
	return counts
}

func TestSamplingFollowsTheChances(t *testing.T) {
	// Chances 1/8, 1/2, 1/4, 1/8 at temperature 1.
	logits := []float32{0, 2 * math.Ln2, math.Ln2, 0}
	for name, c := range map[string]struct {
		s    Sampler
		want []float64
	}{
		"plain":       {Sampler{Temperature: 1}, []float64{1. / 8, 1. / 2, 1. / 4, 1. / 8}},
		"cold":        {Sampler{Temperature: 0.5}, []float64{1. / 22, 16. / 22, 4. / 22, 1. / 22}},
		"top-k":       {Sampler{Temperature: 1, TopK: 2}, []float64{0, 2. / 3, 1. / 3, 0}},
		"top-k large": {Sampler{Temperature: 1, TopK: 9}, []float64{1. / 8, 1. / 2, 1. / 4, 1. / 8}},
		"top-p":       {Sampler{Temperature: 1, TopP: 0.7}, []float64{0, 2. / 3, 1. / 3, 0}},
		"top-p edge":  {Sampler{Temperature: 1, TopP: 0.5}, []float64{0, 1, 0, 0}},
		// Three of four are left, and 0.9 of their chance needs all three.
		"both":        {Sampler{Temperature: 1, TopK: 3, TopP: 0.9}, []float64{1. / 7, 4. / 7, 2. / 7, 0}},
		"greedy":      {Sampler{}, []float64{0, 1, 0, 0}},
		"one of many": {Sampler{Temperature: 1, TopK: 1}, []float64{0, 1, 0, 0}},
		"other seed":  {Sampler{Temperature: 1, Seed: 99}, []float64{1. / 8, 1. / 2, 1. / 4, 1. / 8}},
	} {
		got := share(c.s, logits)
		for i, w := range c.want {
			if math.Abs(got[i]-w) > 0.0125 { // five standard errors of a half
				t.Errorf("%s: token %d has the share %.3f, want %.3f", name, i, got[i], w)
			}
			if w == 0 && got[i] != 0 {
				t.Errorf("%s: token %d was picked", name, i)
			}
		}
	}
}

func TestGreedyTakesTheFirstOfEquals(t *testing.T) {
	if got := (Sampler{}).Pick([]float32{1, 3, 3, 2}, 0); got != 1 {
		t.Errorf("token %d, want 1", got)
	}
}

func TestSamplingIsRepeatable(t *testing.T) {
	logits := []float32{0.1, 0.2, 0.3, 0.4, 0.5}
	differs := false
	for place := range uint64(100) {
		a, b := Sampler{Temperature: 1, Seed: 1}, Sampler{Temperature: 1, Seed: 2}
		if a.Pick(logits, place) != a.Pick(logits, place) {
			t.Fatal("the same seed and place gave two tokens")
		}
		differs = differs || a.Pick(logits, place) != b.Pick(logits, place)
	}
	if !differs {
		t.Error("two seeds gave the same text")
	}
}

func TestSamplersThatCannotWork(t *testing.T) {
	for _, s := range []Sampler{{Temperature: -1}, {Temperature: math.NaN()}, {Temperature: math.Inf(1)}, {TopK: -1}, {TopP: 1.5}, {TopP: -0.1}} {
		if s.Check() == nil {
			t.Errorf("%+v was accepted", s)
		}
	}
	if err := (Sampler{Temperature: 2, TopK: 5, TopP: 1}).Check(); err != nil {
		t.Error(err)
	}
}
