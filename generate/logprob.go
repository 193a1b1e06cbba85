package generate

import (
	"fmt"
	"math"
	"slices"
)

// logNormalizer is the logarithm of the sum of exponentials: a logit less it is the
// logarithm of a probability.
func logNormalizer(logits []float32) (float64, error) {
	best, err := largest(logits)
	if err != nil {
		return 0, err
	}
	top := float64(logits[best])
	var sum float64
	for _, l := range logits {
		sum += math.Exp(float64(l) - top)
	}
	return top + math.Log(sum), nil
}

// Logprob is the natural logarithm of a token's probability, by the logits in its place.
func Logprob(id int32, logits []float32) (float64, error) {
	t, err := rated(id, logits, 0)
	return t.Logprob, err
}

// rated is a token with its log-probability and those of the most likely tokens.
func rated(id int32, logits []float32, most int) (Token, error) {
	if id < 0 || int(id) >= len(logits) {
		return Token{}, fmt.Errorf("token %d is not one of the %d of the vocabulary, counted from 0", id, len(logits))
	}
	z, err := logNormalizer(logits)
	if err != nil {
		return Token{}, err
	}
	t := Token{ID: id, Logprob: float64(logits[id]) - z}
	for _, k := range mostLikely(logits, most) {
		t.Top = append(t.Top, Alternative{k, float64(logits[k]) - z})
	}
	return t, nil
}

// mostLikely are the ids of the n largest logits, the largest first, of equal ones the lowest
// id first.
func mostLikely(logits []float32, n int) []int32 {
	if n = min(n, len(logits)); n == 0 {
		return nil
	}
	list := make([]int32, 0, n+1)
	for i, l := range logits {
		if len(list) == n && l <= logits[list[n-1]] {
			continue
		}
		at, _ := slices.BinarySearchFunc(list, l, func(k int32, l float32) int {
			if logits[k] >= l {
				return -1
			}
			return 1
		})
		list = slices.Insert(list, at, int32(i))
		list = list[:min(len(list), n)]
	}
	return list
}
