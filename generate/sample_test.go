package generate

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// picker makes a picker of an empty text.
func picker(t testing.TB, s Sampler) *Picker {
	t.Helper()
	p, err := s.Picker(nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func pick(t testing.TB, p *Picker, logits []float32, position int) int32 {
	t.Helper()
	token, err := p.Pick(logits, position)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// floats are numbers of a fixture.
type floats []float32

func (f *floats) UnmarshalJSON(raw []byte) error {
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return err
	}
	bytes, err := base64.StdEncoding.DecodeString(text)
	for i := 0; i+4 <= len(bytes); i += 4 {
		*f = append(*f, math.Float32frombits(binary.LittleEndian.Uint32(bytes[i:])))
	}
	return err
}

// samplerCase is logits with what transformers makes of them.
type samplerCase struct {
	Options struct {
		Temperature, TopP, MinP                              float64
		TopK                                                 int
		RepetitionPenalty, PresencePenalty, FrequencyPenalty float64
		LogitBias                                            map[int32]float64
	}
	Seed              string
	Sequence          uint32
	Prompt, Generated []int32
	Logits, Scores    floats
	Token             int32
}

// Processed logits are those of transformers, and so is the token that the same random
// number draws from them.
func TestSamplersAreThoseOfTransformers(t *testing.T) {
	raw, err := os.ReadFile("testdata/samplers.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Cases []samplerCase }
	names := []string{"top_k", "TopK", "top_p", "TopP", "min_p", "MinP", "repetition_penalty", "RepetitionPenalty", "presence_penalty", "PresencePenalty", "frequency_penalty", "FrequencyPenalty", "logit_bias", "LogitBias"}
	if err := json.Unmarshal([]byte(strings.NewReplacer(names...).Replace(string(raw))), &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Cases) < 300 {
		t.Fatalf("%d cases", len(file.Cases))
	}
	for i, c := range file.Cases {
		seed, err := strconv.ParseUint(c.Seed, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		o := c.Options
		s := Sampler{LogitBias: o.LogitBias, RepetitionPenalty: o.RepetitionPenalty, PresencePenalty: o.PresencePenalty, FrequencyPenalty: o.FrequencyPenalty,
			Temperature: o.Temperature, TopK: o.TopK, TopP: o.TopP, MinP: o.MinP, Seed: seed}
		p, err := s.Picker(c.Prompt, c.Sequence)
		if err != nil {
			t.Fatal(err)
		}
		for _, token := range c.Generated {
			p.Add(token)
		}
		given := slices.Clone(c.Logits)
		scores, err := p.Process(given)
		if err != nil {
			t.Fatalf("case %d: %v", i, err)
		}
		if !slices.Equal(scores, c.Scores) {
			for k := range scores {
				if scores[k] != c.Scores[k] {
					t.Errorf("case %d: token %d of %d has %v, transformers %v; %+v", i, k, len(scores), scores[k], c.Scores[k], s)
					break
				}
			}
		}
		if token := pick(t, p, given, len(c.Prompt)+len(c.Generated)); token != c.Token {
			t.Errorf("case %d: token %d, want %d; %+v", i, token, c.Token, s)
		}
		if !slices.Equal(given, c.Logits) {
			t.Fatalf("case %d: picking changed the logits", i)
		}
	}
}

// share is how often each token is picked in many places of a text.
func share(t *testing.T, s Sampler, logits []float32) []float64 {
	const n = 40_000
	counts := make([]float64, len(logits))
	p := picker(t, s)
	for place := range n {
		counts[pick(t, p, logits, place)] += 1.0 / n
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
		// The third and the fourth are equally likely, so both stay.
		"top-k ties": {Sampler{Temperature: 1, TopK: 3}, []float64{1. / 8, 1. / 2, 1. / 4, 1. / 8}},
		"top-p":      {Sampler{Temperature: 1, TopP: 0.7}, []float64{0, 2. / 3, 1. / 3, 0}},
		"min-p":      {Sampler{Temperature: 1, MinP: 0.4}, []float64{0, 2. / 3, 1. / 3, 0}},
		// Of equally likely tokens the one with the lower id goes first.
		"top-p ties":  {Sampler{Temperature: 1, TopP: 0.8}, []float64{0, 4. / 7, 2. / 7, 1. / 7}},
		"bias":        {Sampler{Temperature: 1, LogitBias: map[int32]float64{1: math.Inf(-1), 0: math.Ln2}}, []float64{2. / 5, 0, 2. / 5, 1. / 5}},
		"greedy":      {Sampler{}, []float64{0, 1, 0, 0}},
		"one of many": {Sampler{Temperature: 1, TopK: 1}, []float64{0, 1, 0, 0}},
		"other seed":  {Sampler{Temperature: 1, Seed: 99}, []float64{1. / 8, 1. / 2, 1. / 4, 1. / 8}},
	} {
		got := share(t, c.s, logits)
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
	if got := pick(t, picker(t, Sampler{}), []float32{1, 3, 3, 2}, 0); got != 1 {
		t.Errorf("token %d, want 1", got)
	}
}

// Seed, sequence and position name a random number.
func TestSamplingIsRepeatable(t *testing.T) {
	logits := []float32{0.1, 0.2, 0.3, 0.4, 0.5}
	texts := map[string]bool{}
	for _, seed := range []uint64{1, 2} {
		for _, sequence := range []uint32{0, 1} {
			var first []int32
			for range 2 {
				p, err := Sampler{Temperature: 1, Seed: seed}.Picker(nil, sequence)
				if err != nil {
					t.Fatal(err)
				}
				var text []int32
				for place := range 100 {
					text = append(text, pick(t, p, logits, place))
				}
				if first != nil && !slices.Equal(text, first) {
					t.Errorf("seed %d and sequence %d gave two texts", seed, sequence)
				}
				first = text
			}
			raw, err := json.Marshal(first)
			if err != nil {
				t.Fatal(err)
			}
			texts[string(raw)] = true
		}
	}
	if len(texts) != 4 {
		t.Errorf("two seeds and two sequences gave %d texts", len(texts))
	}
}

func TestSamplersThatCannotWork(t *testing.T) {
	inf := math.Inf(1)
	for _, s := range []Sampler{{Temperature: -1}, {Temperature: math.NaN()}, {Temperature: inf}, {Temperature: 1e-40}, {TopK: -1}, {TopP: 1.5}, {TopP: -0.1}, {MinP: 2}, {MinP: math.NaN()},
		{RepetitionPenalty: -1}, {RepetitionPenalty: inf}, {PresencePenalty: inf}, {FrequencyPenalty: math.NaN()}, {LogitBias: map[int32]float64{-1: 0}}, {LogitBias: map[int32]float64{1: inf}}} {
		if _, err := s.Picker(nil, 0); err == nil {
			t.Errorf("%+v was accepted", s)
		}
	}
	if err := (Sampler{Temperature: 2, TopK: 5, TopP: 1, MinP: 1, RepetitionPenalty: 1}).Check(); err != nil {
		t.Error(err)
	}
}

// Logits from which nothing can be picked are errors, not tokens.
func TestLogitsThatAreNone(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for name, c := range map[string]struct {
		s      Sampler
		logits []float32
		says   string
	}{
		"NaN":              {Sampler{}, []float32{1, nan, 2}, "logit of token 1 is NaN"},
		"NaN, sampled":     {Sampler{Temperature: 1, TopK: 1, TopP: 0.5}, []float32{nan, nan}, "NaN"},
		"forbidden":        {Sampler{}, []float32{-inf, -inf}, "all 2 logits are -Inf"},
		"forbidden by all": {Sampler{Temperature: 1, LogitBias: map[int32]float64{0: math.Inf(-1)}}, []float32{3}, "all 1 logits are -Inf"},
		"infinite":         {Sampler{Temperature: 1}, []float32{1, inf}, "infinite"},
		"overflow":         {Sampler{Temperature: 1e-30}, []float32{1, 1e10}, "higher --temperature"},
		"bias":             {Sampler{LogitBias: map[int32]float64{9: 1}}, []float32{1, 2}, "vocabulary has 2 tokens"},
	} {
		if token, err := picker(t, c.s).Pick(c.logits, 0); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: token %d, %v", name, token, err)
		}
	}
}

// vocabulary is random logits of a large vocabulary.
func vocabulary(n int) []float32 {
	logits := make([]float32, n)
	x := uint32(1)
	for i := range logits {
		x = x*1664525 + 1013904223
		logits[i] = float32(x>>8) / (1 << 21)
	}
	return logits
}

// After the first token picking allocates nothing.
func TestPickingAllocatesNothing(t *testing.T) {
	logits := vocabulary(5000)
	p := picker(t, Sampler{Temperature: 0.9, TopK: 500, TopP: 0.9, MinP: 0.01, RepetitionPenalty: 1.1, FrequencyPenalty: 0.1, LogitBias: map[int32]float64{7: 1}})
	p.Add(pick(t, p, logits, 0))
	if n := testing.AllocsPerRun(20, func() { pick(t, p, logits, 1) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkPick(b *testing.B) {
	logits := vocabulary(128_256)
	for name, s := range map[string]Sampler{"greedy": {}, "temperature": {Temperature: 0.8}, "top-k": {Temperature: 0.8, TopK: 40}, "top-p": {Temperature: 0.8, TopP: 0.9}} {
		b.Run(name, func(b *testing.B) {
			p := picker(b, s)
			for i := range b.N {
				pick(b, p, logits, i)
			}
		})
	}
}
