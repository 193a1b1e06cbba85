package generate_test

import (
	"encoding/json"
	"os"
	"slices"
	"testing"

	"spillway/run"
)

// Greedy texts are transformers', over 200 tokens: of models with a sliding window, one
// key-value head, rope scaled by llama3 and yarn, tied weights, and heads whose width is not
// that of the model divided by their number.
func TestGreedyTextsAreTransformers(t *testing.T) {
	raw, err := os.ReadFile("../testdata/reference/generation.json")
	must(t, err)
	var want struct {
		Texts map[string]struct{ Prompt, Tokens []int32 }
	}
	must(t, json.Unmarshal(raw, &want))
	if len(want.Texts) < 6 {
		t.Fatalf("%d texts", len(want.Texts))
	}
	for name, w := range want.Texts {
		t.Run(name, func(t *testing.T) {
			s := session(t, name, run.Generation{Context: 256, Streams: 2, Page: 16})
			other, q := add(t, s, text(8, 30)), add(t, s, w.Prompt) // another sequence changes nothing
			for len(w.Prompt)+len(w.Tokens) > q.Len() {
				step(t, s)
				must(t, q.Append(int32(slices.Index(q.Logits(), slices.Max(q.Logits())))))
				must(t, other.Append(int32(q.Len()%60)))
			}
			if got := q.Tokens()[len(w.Prompt):]; !slices.Equal(got, w.Tokens) {
				t.Errorf("the text is\n%v, want\n%v", got, w.Tokens)
			}
		})
	}
}
