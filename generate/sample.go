package generate

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"spillway/op"
)

// Sampler says how tokens are picked from logits. The zero value is greedy: it picks the
// most likely token, and of equally likely ones that with the lowest id.
//
// What is given is applied in the order in which transformers applies it: LogitBias, the
// three penalties, Temperature, TopK, TopP, MinP. Then a token is drawn from what is left.
type Sampler struct {
	// LogitBias is added to the logits of tokens; -Inf forbids one.
	LogitBias map[int32]float64
	// RepetitionPenalty divides positive logits, and multiplies negative ones, of tokens that
	// the text or its prompt has; 0 and 1 mean none.
	RepetitionPenalty float64
	// PresencePenalty is subtracted from the logits of tokens that were generated already, and
	// FrequencyPenalty for each time that they were, as OpenAI defines both. Those of the
	// prompt do not count.
	PresencePenalty, FrequencyPenalty float64

	Temperature float64 // 0 means greedy; above 1 makes probabilities more even
	TopK        int     // keep this many most likely tokens, and those as likely as the last; 0 means all
	TopP        float64 // keep the most likely tokens with this total probability; 0 or 1 means all
	MinP        float64 // keep tokens at least this likely relative to the most likely; 0 means all

	Seed uint64
}

// smallest temperature with which logits of common size do not overflow float32.
const minTemperature = 1e-30

// Check returns an error if an option is out of range.
func (s Sampler) Check() error {
	finite := func(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
	switch {
	case !(s.Temperature >= 0) || math.IsInf(s.Temperature, 0):
		return fmt.Errorf("temperature %v: it is 0 for greedy or above", s.Temperature)
	case s.Temperature > 0 && s.Temperature < minTemperature:
		return fmt.Errorf("temperature %v is too close to 0 to divide by; 0 is greedy", s.Temperature)
	case s.TopK < 0:
		return fmt.Errorf("top-k %d: it is a number of tokens, 0 for all", s.TopK)
	case !(s.TopP >= 0 && s.TopP <= 1):
		return fmt.Errorf("top-p %v: it is a probability, above 0 and up to 1", s.TopP)
	case !(s.MinP >= 0 && s.MinP <= 1):
		return fmt.Errorf("min-p %v: it is from 0 to 1", s.MinP)
	case !(s.RepetitionPenalty >= 0) || !finite(s.RepetitionPenalty):
		return fmt.Errorf("repetition penalty %v: it is above 0, and 1 means none", s.RepetitionPenalty)
	case !finite(s.PresencePenalty) || !finite(s.FrequencyPenalty):
		return fmt.Errorf("presence penalty %v and frequency penalty %v: they are finite numbers", s.PresencePenalty, s.FrequencyPenalty)
	}
	for token, bias := range s.LogitBias {
		if token < 0 || math.IsNaN(bias) || math.IsInf(bias, 1) {
			return fmt.Errorf("logit bias %v of token %d: a token is 0 or above, a bias finite or -Inf", bias, token)
		}
	}
	return nil
}

// Picker picks the tokens of one text. It allocates its memory with the first token and
// nothing after.
type Picker struct {
	s      Sampler
	random op.Stream
	bias   []biased
	text   map[int32]*occurrence // tokens of the text
	order  []int32               // the same, in the order in which they came

	scores []float32 // logits after all that changes them
	left   candidates
}

// biased is a token with its bias.
type biased struct {
	token int32
	bias  float32
}

// occurrence is how often a token was generated; 0 where only the prompt has it.
type occurrence struct{ generated int }

// Drawing is how a device draws the tokens of a sequence; nil where it takes what a device does not
// know: biases, and penalties, which depend on the text.
func (s Sampler) Drawing(sequence uint32) *op.Sampling {
	if len(s.LogitBias) > 0 || s.RepetitionPenalty != 0 && s.RepetitionPenalty != 1 || s.PresencePenalty != 0 || s.FrequencyPenalty != 0 {
		return nil
	}
	d := &op.Sampling{Temperature: float32(s.Temperature), TopK: int32(min(s.TopK, math.MaxInt32)), MinP: float32(s.MinP), Stream: op.NewStream(s.Seed, sequence)}
	if s.TopP > 0 && s.TopP < 1 {
		d.Drop = float32(1 - s.TopP)
	}
	return d
}

// Picker makes a picker for a text. Sequences of one request have numbers, so that each
// draws its own random numbers.
func (s Sampler) Picker(prompt []int32, sequence uint32) (*Picker, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	p := &Picker{s: s, random: op.NewStream(s.Seed, sequence), text: map[int32]*occurrence{}}
	for _, token := range slices.Sorted(maps.Keys(s.LogitBias)) {
		p.bias = append(p.bias, biased{token, float32(s.LogitBias[token])})
	}
	for _, token := range prompt {
		p.note(token, 0)
	}
	return p, nil
}

// Add says that a token was generated.
func (p *Picker) Add(token int32) { p.note(token, 1) }

func (p *Picker) note(token int32, times int) {
	if !p.counts() {
		return
	}
	o := p.text[token]
	if o == nil {
		o = &occurrence{}
		p.text[token], p.order = o, append(p.order, token)
	}
	o.generated += times
}

// counts says whether picking depends on what the text has.
func (p *Picker) counts() bool {
	return p.penalizesRepetition() || p.s.PresencePenalty != 0 || p.s.FrequencyPenalty != 0
}

func (p *Picker) penalizesRepetition() bool {
	return p.s.RepetitionPenalty != 0 && p.s.RepetitionPenalty != 1
}

// fork is a picker for a text that goes on as this one does.
func (p *Picker) fork() *Picker {
	twin := &Picker{s: p.s, random: p.random, bias: p.bias, order: slices.Clone(p.order), text: map[int32]*occurrence{}}
	for token, o := range p.text {
		twin.text[token] = &occurrence{o.generated}
	}
	return twin
}

// follow has a twin know the same text as the picker that it is one of.
func (p *Picker) follow(of *Picker) {
	if !p.counts() {
		return
	}
	p.order = append(p.order[:0], of.order...)
	clear(p.text)
	for token, o := range of.text {
		p.text[token] = &occurrence{o.generated}
	}
}

// Pick picks a token. The position in the text selects the random number, so that the
// same seed and logits give the same text.
func (p *Picker) Pick(logits []float32, position int) (int32, error) {
	scores, err := p.Process(logits)
	if err != nil {
		return 0, err
	}
	if p.s.Temperature == 0 {
		return largest(scores)
	}
	return p.left.draw(scores, float64(p.random.Uniform(uint64(position)))), nil
}

// Candidates are the tokens that would most probably be picked from logits which are nearly these, at most n, the
// most probable first.
func (p *Picker) Candidates(logits []float32, position, n int) ([]Candidate, error) {
	scores, err := p.Process(logits)
	if err != nil {
		return nil, err
	}
	if p.s.Temperature > 0 {
		return p.left.near(scores, float64(p.random.Uniform(uint64(position))), n), nil
	}
	if _, err := largest(scores); err != nil {
		return nil, err
	}
	return most(scores, n), nil
}

// Process gives the logits after all that changes them; those of tokens that must not be
// picked are -Inf. They are valid until the next call. Nothing is drawn.
func (p *Picker) Process(logits []float32) ([]float32, error) {
	scores, err := p.penalize(logits)
	if err != nil || p.s.Temperature == 0 {
		return scores, err
	}
	if t := float32(p.s.Temperature); t != 1 {
		for i := range scores {
			scores[i] /= t
		}
	}
	best, err := largest(scores)
	if err != nil {
		return nil, err
	}
	p.left.begin(scores, scores[best])
	if k := p.s.TopK; k > 0 {
		p.left.keepTopK(scores, k)
	}
	if p.s.TopP > 0 && p.s.TopP < 1 {
		p.left.keepTopP(scores, p.s.TopP)
	}
	if p.s.MinP > 0 {
		p.left.keepMinP(scores, float32(p.s.MinP))
	}
	return scores, nil
}

// penalize copies logits, and adds biases and penalties.
func (p *Picker) penalize(logits []float32) ([]float32, error) {
	if p.s.Temperature == 0 && len(p.bias) == 0 && !p.counts() {
		return logits, nil // they are only looked at
	}
	p.scores = append(p.scores[:0], logits...)
	for _, b := range p.bias {
		if int(b.token) >= len(logits) {
			return nil, fmt.Errorf("logit bias of token %d: the vocabulary has %d tokens, counted from 0", b.token, len(logits))
		}
		p.scores[b.token] += b.bias
	}
	if !p.counts() {
		return p.scores, nil
	}
	penalty := float32(1)
	if p.penalizesRepetition() {
		penalty = float32(p.s.RepetitionPenalty)
	}
	for _, token := range p.order {
		if token < 0 || int(token) >= len(logits) {
			continue // it can never be picked
		}
		v := &p.scores[token]
		if *v < 0 {
			*v *= penalty
		} else {
			*v /= penalty
		}
		if n := p.text[token].generated; n > 0 {
			*v -= float32(float64(n)*p.s.FrequencyPenalty + p.s.PresencePenalty)
		}
	}
	return p.scores, nil
}

// largest is the first of the largest logits. NaN and +Inf are no logits, and of -Inf alone
// nothing can be picked.
func largest(logits []float32) (int32, error) {
	best, top := -1, float32(math.Inf(-1))
	for i, l := range logits {
		if l > top {
			best, top = i, l
		} else if l != l {
			return 0, fmt.Errorf("the logit of token %d is NaN; the model's weights are damaged, or its numbers overflow: try --dtype f32", i)
		}
	}
	if best < 0 {
		return 0, fmt.Errorf("all %d logits are -Inf, so no token can be picked; forbid fewer with --logit-bias", len(logits))
	}
	if math.IsInf(float64(top), 1) {
		return 0, fmt.Errorf("the logit of token %d is infinite; the model's numbers overflow: try --dtype f32, or a higher --temperature", best)
	}
	return int32(best), nil
}
