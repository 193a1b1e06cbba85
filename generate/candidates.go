package generate

import (
	"math"
	"slices"
)

var forbidden = float32(math.Inf(-1))

// candidates are the tokens that may still be picked. Most are ruled out without sorting
// the vocabulary, and nothing is allocated once its memory is there.
type candidates struct {
	tokens []int32 // in the order of their ids
	top    float32 // score of the most likely one

	heap    []float32 // the largest scores, the smallest of them first
	ranked  []int32   // tokens, on the way to being in the order of their scores
	chance  []float32 // probabilities, by token
	weights []float64 // probabilities relative to the most likely token, by candidate
}

// begin takes all tokens that are not forbidden.
func (c *candidates) begin(scores []float32, top float32) {
	c.tokens, c.top = c.tokens[:0], top
	for i, l := range scores {
		if l != forbidden {
			c.tokens = append(c.tokens, int32(i))
		}
	}
}

// keep forbids the tokens that do not pass.
func (c *candidates) keep(scores []float32, passes func(token int32) bool) {
	kept := c.tokens[:0]
	for _, t := range c.tokens {
		if passes(t) {
			kept = append(kept, t)
		} else {
			scores[t] = forbidden
		}
	}
	c.tokens = kept
}

// keepTopK forbids all tokens that are less likely than the k-th.
func (c *candidates) keepTopK(scores []float32, k int) {
	if k >= len(c.tokens) {
		return
	}
	h := c.heap[:0]
	for _, t := range c.tokens {
		switch l := scores[t]; {
		case len(h) < k:
			h = append(h, l)
			raise(h)
		case l > h[0]:
			h[0] = l
			sink(h)
		}
	}
	c.heap = h
	least := h[0]
	c.keep(scores, func(t int32) bool { return scores[t] >= least })
}

// raise moves the last element of a heap to its place.
func raise(h []float32) {
	for i := len(h) - 1; i > 0; {
		parent := (i - 1) / 2
		if h[parent] <= h[i] {
			return
		}
		h[parent], h[i], i = h[i], h[parent], parent
	}
}

// sink moves the first element of a heap to its place.
func sink(h []float32) {
	for i := 0; ; {
		child := 2*i + 1
		if child >= len(h) {
			return
		}
		if child+1 < len(h) && h[child+1] < h[child] {
			child++
		}
		if h[i] <= h[child] {
			return
		}
		h[i], h[child], i = h[child], h[i], child
	}
}

// keepTopP forbids the least likely tokens, as many as have a total probability of at most
// 1-p, and of equally likely ones those with the lowest ids first. The most likely is left.
// Probabilities and their sums are rounded as transformers rounds them.
func (c *candidates) keepTopP(scores []float32, p float64) {
	c.chance = slices.Grow(c.chance[:0], len(scores))[:len(scores)]
	var total float64
	for _, t := range c.tokens {
		w := c.weight(scores[t])
		c.chance[t] = float32(w)
		total += w
	}
	for _, t := range c.tokens {
		c.chance[t] = float32(float64(c.chance[t]) / total)
	}
	c.ranked = append(c.ranked[:0], c.tokens...)
	most, gone := float32(1-p), 0.0 // what may go, and what has gone
	for left := c.ranked; len(left) > 0; {
		// The border is among the tokens as likely as the pivot, or on one side of them.
		less, equal := partition(left, scores)
		var sum float64
		for _, t := range left[:less] {
			sum += float64(c.chance[t])
		}
		if float32(gone+sum) > most {
			left = left[:less]
			continue
		}
		for _, t := range left[:less] {
			scores[t] = forbidden
		}
		gone += sum
		same := left[less : less+equal]
		slices.Sort(same)
		for i, t := range same {
			gone += float64(c.chance[t])
			if float32(gone) > most || i == len(left)-less-1 {
				left = nil
				break
			}
			scores[t] = forbidden
		}
		if left != nil {
			left = left[less+equal:]
		}
	}
	c.keep(scores, func(t int32) bool { return scores[t] != forbidden })
}

// partition divides tokens by their scores into those less than, equal to and above a score
// from their midst, and returns how many there are of the first two.
func partition(list []int32, scores []float32) (less, equal int) {
	pivot := middle(scores[list[0]], scores[list[len(list)/2]], scores[list[len(list)-1]])
	low, at, high := 0, 0, len(list)
	for at < high {
		switch s := scores[list[at]]; {
		case s < pivot:
			list[low], list[at] = list[at], list[low]
			low++
			at++
		case s == pivot:
			at++
		default:
			high--
			list[at], list[high] = list[high], list[at]
		}
	}
	return low, high - low
}

// middle is the second largest of three.
func middle(a, b, c float32) float32 { return max(min(a, b), min(max(a, b), c)) }

// keepMinP forbids tokens whose probability is below a share of the most likely one's.
func (c *candidates) keepMinP(scores []float32, share float32) {
	var total float64
	for _, t := range c.tokens {
		total += c.weight(scores[t])
	}
	least := share * float32(1/total)
	c.keep(scores, func(t int32) bool { return scores[t] == c.top || float32(c.weight(scores[t])/total) >= least })
}

// draw picks a token by its probability: in the order of their ids, the first up to which
// the probabilities sum to more than u.
func (c *candidates) draw(scores []float32, u float64) int32 {
	c.weights = c.weights[:0]
	var total float64
	for _, t := range c.tokens {
		w := c.weight(scores[t])
		c.weights = append(c.weights, w)
		total += w
	}
	left, last := total*u, c.tokens[0]
	for i, w := range c.weights {
		if w == 0 {
			continue
		}
		last = c.tokens[i]
		if left -= w; left < 0 {
			break
		}
	}
	return last
}

// weight is the probability of a score, relative to that of the most likely token.
func (c *candidates) weight(score float32) float64 {
	return math.Exp(float64(score) - float64(c.top))
}

// spread is how far the sums of probabilities of a model differ from those of another one that guesses for it, as a
// share of all.
const spread = 0.03

// near are tokens that may be drawn with a random number from probabilities like these, the most probable first: the one that it draws
// from these, and those whose places in the sum are not far. Half of the chance is that the same is drawn,
// the other half that of a number which differs by a logistic distribution.
func (c *candidates) near(scores []float32, u float64, n int) (list []Candidate) {
	const far, least = 8 * spread, 1e-4
	drawn := c.draw(scores, u)
	var total float64
	for _, w := range c.weights {
		total += w
	}
	below := func(at float64) float64 { return 1 / (1 + math.Exp((u-at)/spread)) }
	all, low := 2*(below(1)-below(0)), 0.0
	for i, w := range c.weights {
		w /= total
		high, token := low+w, c.tokens[i]
		if high > u-far && low < u+far && w > least || token == drawn {
			chance := (below(high) - below(low)) / all
			if token == drawn {
				chance += 0.5
			}
			list = ranked(list, Candidate{token, chance}, n)
		}
		low = high
	}
	return list
}

// most are the tokens with the highest scores. Their chances are those among a few of them.
func most(scores []float32, n int) (list []Candidate) {
	const few = 8
	for t, s := range scores {
		if s != forbidden && (len(list) < few || float64(s) > list[len(list)-1].Chance) {
			list = ranked(list, Candidate{int32(t), float64(s)}, few)
		}
	}
	var total float64
	for i := range list {
		total += math.Exp(list[i].Chance - list[0].Chance)
	}
	top := list[0].Chance
	for i := range list {
		list[i].Chance = math.Exp(list[i].Chance-top) / total
	}
	return list[:min(n, len(list))]
}

// ranked adds a candidate to the best n so far, behind those that are as good.
func ranked(list []Candidate, c Candidate, n int) []Candidate {
	at := len(list)
	for at > 0 && list[at-1].Chance < c.Chance {
		at--
	}
	if at >= n {
		return list
	}
	return slices.Insert(list[:min(len(list), n-1)], at, c)
}
