package generate

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"spillway/op"
)

// Sampler picks a token from logits. The zero value is greedy: it picks the most likely
// token, and of equally likely ones that with the lowest id.
type Sampler struct {
	Temperature float64 // 0 means greedy; above 1 makes probabilities more even
	TopK        int     // sample from this many most likely tokens; 0 means all
	TopP        float64 // sample from the most likely tokens with this total probability; 0 or 1 means all
	Seed        uint64
}

// Check returns an error if an option is out of range.
func (s Sampler) Check() error {
	if !(s.Temperature >= 0) || math.IsInf(s.Temperature, 0) || s.TopK < 0 || !(s.TopP >= 0 && s.TopP <= 1) {
		return fmt.Errorf("sampling with temperature %v, top-k %d and top-p %v: temperature and top-k must not be negative, top-p must be from 0 to 1", s.Temperature, s.TopK, s.TopP)
	}
	return nil
}

// Pick picks a token. The position in the text selects the random number, so that the
// same seed and logits give the same text.
func (s Sampler) Pick(logits []float32, position uint64) int32 {
	if s.Temperature == 0 || s.TopK == 1 {
		best := 0
		for i, l := range logits {
			if l > logits[best] {
				best = i
			}
		}
		return int32(best)
	}
	likely := s.candidates(logits)
	var total float64
	for _, c := range likely {
		total += c.probability
	}
	left := total * float64(op.Uniform(s.Seed, 0, position))
	for _, c := range likely {
		if left -= c.probability; left < 0 {
			return c.token
		}
	}
	return likely[len(likely)-1].token // the sum was rounded up
}

// candidate is a token with its unnormalized probability.
type candidate struct {
	token       int32
	probability float64
}

// candidates returns the tokens that TopK and TopP leave, the most likely first.
func (s Sampler) candidates(logits []float32) []candidate {
	top := float64(slices.Max(logits))
	list := make([]candidate, len(logits))
	var total float64
	for i, l := range logits {
		list[i] = candidate{int32(i), math.Exp((float64(l) - top) / s.Temperature)}
		total += list[i].probability
	}
	slices.SortFunc(list, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(b.probability, a.probability), cmp.Compare(a.token, b.token))
	})
	if s.TopK > 0 && s.TopK < len(list) {
		list = list[:s.TopK]
		total = 0
		for _, c := range list {
			total += c.probability
		}
	}
	if s.TopP == 0 {
		return list
	}
	var sum float64
	for i, c := range list {
		if sum += c.probability; sum >= s.TopP*total {
			return list[:i+1]
		}
	}
	return list
}
