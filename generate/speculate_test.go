package generate_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	"spillway/generate"
	"spillway/run"
)

// oracle guesses a text that it knows, and now and then something else first.
type oracle struct {
	text  []int32
	wrong int // every so many tokens the first guess is wrong; 0: never
	deep  int // continuations that were asked for at once, at most
}

func (o *oracle) Follow(_ context.Context, text []int32, after [][]int32, most int, _ *generate.Picker) (list [][]generate.Candidate, err error) {
	o.deep = max(o.deep, len(after))
	for _, path := range after {
		var guessed []generate.Candidate
		at := len(text) + len(path)
		if right := slices.Equal(path, o.text[len(text):min(at, len(o.text))]); right && at < len(o.text) {
			guessed = []generate.Candidate{{Token: o.text[at], Chance: 0.9}}
			if o.wrong > 0 && at%o.wrong == 0 {
				guessed = []generate.Candidate{{Token: o.text[at] ^ 1, Chance: 0.6}, {Token: o.text[at] ^ 2, Chance: 0.3}, {Token: o.text[at], Chance: 0.2}}
			}
		} else if o.wrong > 0 && at < len(o.text) {
			guessed = []generate.Candidate{{Token: int32(at % 50), Chance: 0.3}}
		}
		list = append(list, guessed[:min(most, len(guessed))])
	}
	return list, nil
}

func (o *oracle) Close() error { return nil }

// spoken generates a text and says what came: tokens, log-probabilities, pieces and why it ended.
func spoken(t *testing.T, e generate.Engine, r generate.Request) (said string, tokens []int32, s generate.Statistics) {
	t.Helper()
	g := finished(t, e, r)
	for _, result := range g.Results() {
		said += fmt.Sprintln(result.Tokens, result.End, result.StopToken)
	}
	return said, texts(g, r.Prompt)[0], g.Statistics()
}

// The text is that without speculation to the bit, whoever guesses, however many and how well: greedy
// and sampled, with penalties, several samples at once, log-probabilities, and where it ends.
func TestSpeculationChangesNoText(t *testing.T) {
	for _, model := range []string{"llama", "mistral"} {
		for _, c := range []struct {
			name string
			r    generate.Request
		}{
			{"greedy", generate.Request{MaxNewTokens: 40}},
			{"log-probabilities", generate.Request{MaxNewTokens: 20, Logprobs: true, TopLogprobs: 2}},
			{"sampled", generate.Request{MaxNewTokens: 30, Sampler: generate.Sampler{Temperature: 0.8, TopP: 0.9, Seed: 3}}},
			{"penalties", generate.Request{MaxNewTokens: 30, Sampler: generate.Sampler{Temperature: 0.5, RepetitionPenalty: 1.3, FrequencyPenalty: 0.2}}},
			{"three samples", generate.Request{MaxNewTokens: 20, Samples: 3, Sampler: generate.Sampler{Temperature: 1}}},
			{"to the end of the context", generate.Request{}},
		} {
			t.Run(model+" "+c.name, func(t *testing.T) {
				r := c.r
				r.Prompt = append(text(3, 9), text(3, 9)...) // repeats itself
				want, tokens, plain := spoken(t, session(t, model, run.Generation{Context: 64, Streams: 3, Chunk: 16, Page: 4}), r)
				for _, shape := range []struct{ most, branches int }{{1, 0}, {3, 0}, {7, 0}, {1, 3}, {4, 2}, {7, 5}} {
					most := shape.most
					e := session(t, model, run.Generation{Context: 64, Streams: 3, Chunk: 16, Page: 4, Drafts: int64(most), Branches: int64(shape.branches)})
					small := session(t, model, run.Generation{Context: 64, Streams: 2, Chunk: 16, Branches: int64(shape.branches), Apart: int64(most * min(shape.branches, 1))})
					for name, d := range map[string]generate.Drafter{"lookup": generate.Lookup{}, "right": &oracle{text: tokens}, "mostly right": &oracle{text: tokens, wrong: 5},
						"wrong": &oracle{text: tokens, wrong: 1}, "itself": generate.NewModelDrafter(small)} {
						r.Speculation = &generate.Speculation{Drafter: d, Most: most, Branches: shape.branches}
						got, _, s := spoken(t, e, r)
						if got != want {
							t.Fatalf("%s, %d at once: got %s, want %s", name, most, got, want)
						}
						if s.NewTokens != plain.NewTokens || s.Accepted > s.Guessed {
							t.Errorf("%s: %+v, want %d new tokens", name, s, plain.NewTokens)
						}
						switch all := s.NewTokens - s.Texts; {
						case name == "right" && r.Samples == 0 && s.Steps() > (all+most)/(most+1)+1:
							t.Errorf("%d at once, all right: %d steps, %+v", most, s.Steps(), s)
						case name == "wrong" && r.Samples == 0 && shape.branches < 2 && s.Accepted > 0:
							t.Errorf("%d wrong guesses were taken", s.Accepted)
						case name == "mostly right" && r.Samples == 0 && shape.branches >= 2 && s.Steps() > (all+most)/(most+1)+1:
							t.Errorf("%d at once in %d more branches, one of them right: %d steps, %+v", most, shape.branches, s.Steps(), s)
						case shape.branches > 0: // most are wrong, and only one can be right
						case name == "itself" && s.Accepted < s.Guessed*9/10: // those after the end of a text are in vain
							t.Errorf("%d at once: of what the model itself guesses, sampled by the same random numbers, %d of %d are right", most, s.Accepted, s.Guessed)
						}
					}
				}
			})
		}
	}
}

// No more is guessed than pays: nothing where steps take as long as their rows, a few where guesses are
// seldom right, and all where more rows cost nothing.
func TestSpeculationPays(t *testing.T) {
	prompt := text(3, 12)
	const new = 48
	e := func() generate.Engine { return session(t, "llama", run.Generation{Context: 64, Chunk: 16, Drafts: 7}) }
	_, tokens, _ := spoken(t, e(), generate.Request{Prompt: prompt, MaxNewTokens: new})
	for _, c := range []struct {
		name        string
		seconds     func(rows int) float64
		wrong       int
		least, most float64 // tokens that are guessed
	}{
		{"rows cost nothing", func(int) float64 { return 1 }, 0, 30, 60},
		{"rows cost what they are", func(rows int) float64 { return float64(rows) }, 0, 0, 0},
		{"never right", func(rows int) float64 { return 1 + 0.1*float64(rows) }, 1, 1, 40},
		{"half right", func(rows int) float64 { return 1 + 0.1*float64(rows) }, 2, 20, 120},
	} {
		r := generate.Request{Prompt: prompt, MaxNewTokens: new, Speculation: &generate.Speculation{Drafter: &oracle{text: tokens, wrong: c.wrong}, Most: 7, Seconds: c.seconds}}
		_, got, s := spoken(t, e(), r)
		if n := float64(s.Guessed); !slices.Equal(got, tokens) || n < c.least || n > c.most {
			t.Errorf("%s: %d guessed, %d right, want %v to %v guesses", c.name, s.Guessed, s.Accepted, c.least, c.most)
		}
	}
}

// A text that was sampled with guesses is distributed as without: each token is drawn by its own random
// number, whatever was guessed.
func TestSpeculationKeepsTheDistribution(t *testing.T) {
	e := session(t, "llama", run.Generation{Context: 32, Chunk: 16, Drafts: 3})
	counts := [2]map[int32]float64{{}, {}}
	const texts = 300
	for seed := range uint64(texts) {
		for i := range counts {
			r := generate.Request{Prompt: text(5, 6), MaxNewTokens: 4, Sampler: generate.Sampler{Temperature: 1.5, Seed: seed + uint64(i)*texts}}
			if i == 1 {
				r.Speculation = &generate.Speculation{Drafter: generate.Lookup{Longest: 1, Shortest: 1}, Most: 3}
			}
			_, tokens, _ := spoken(t, e, r)
			for _, id := range tokens[6:] {
				counts[i][id%16]++
			}
		}
	}
	var chi float64 // of two samples, 15 degrees of freedom
	for id := range int32(16) {
		a, b := counts[0][id], counts[1][id]
		if a+b > 0 {
			chi += (a - b) * (a - b) / (a + b)
		}
	}
	if chi > 37.7 || math.IsNaN(chi) { // one in a thousand
		t.Errorf("the distributions differ, chi-squared %.1f", chi)
	}
}
