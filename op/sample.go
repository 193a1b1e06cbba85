package op

import (
	"fmt"
	"math"
	"slices"

	"spillway/dtype"
	"spillway/shape"
)

// Sample draws a token from the logits of each row, so that only its id leaves the device. It
// is what generate.Sampler does without penalties and biases: the temperature, then the most
// likely TopK, those of the probability TopP, and MinP. A temperature of 0 is greedy: the
// largest logit, and of equal ones that of the lowest id.
//
//	operands  logits [1 R V], settings [1 R SampleSettings] i32 (see Sampling)
//	output    tokens [1 R] i32; -1 where logits are NaN, infinite or all -Inf
const Sample Kind = "sample"

// SampleSettings is how many numbers a row of settings has.
const SampleSettings = 8

// Sampling is how the token of a row is drawn. Of zeros it is greedy.
type Sampling struct {
	Temperature float32 // 0 is greedy
	TopK        int32   // 0 is all
	Drop        float32 // 1 - top-p: the least likely tokens of at most this probability are left out; 0 for none
	MinP        float32 // 0 is none
	Stream      Stream  // of random numbers: of the seed and the sequence
	Position    uint64  // in the text, which selects the number
}

// Put writes settings as a row of the operand.
func (s Sampling) Put(row []int32) {
	_ = row[SampleSettings-1]
	row[0], row[1], row[2], row[3] = int32(math.Float32bits(s.Temperature)), s.TopK, int32(math.Float32bits(s.Drop)), int32(math.Float32bits(s.MinP))
	row[4], row[5], row[6], row[7] = int32(s.Stream), int32(s.Stream>>32), int32(s.Position), int32(s.Position>>32)
}

func samplingOf(row []int32) Sampling {
	join := func(low, high int32) uint64 { return uint64(uint32(low)) | uint64(uint32(high))<<32 }
	return Sampling{Temperature: math.Float32frombits(uint32(row[0])), TopK: row[1], Drop: math.Float32frombits(uint32(row[2])), MinP: math.Float32frombits(uint32(row[3])),
		Stream: Stream(join(row[4], row[5])), Position: join(row[6], row[7])}
}

func init() {
	Register(Op{Kind: Sample, Fused: true, Takes: 2, Infer: inferSample, Cost: costSample, Reference: referenceSample, Cases: (*CaseList).sample})
}

func inferSample(_ Attr, in []Type) ([]Type, error) {
	if err := check(float(in, 0), rank(in, 0, 3), ids(in, 1), rank(in, 1, 3)); err != nil {
		return nil, err
	}
	rows := in[0].Shape[1]
	if in[0].Shape[0] != 1 || !in[1].Shape.Equal(shape.Shape{1, rows, SampleSettings}) {
		return nil, fmt.Errorf("logits %v and settings %v, want [1 R V] and [1 R %d]", in[0], in[1], SampleSettings)
	}
	return []Type{{DType: dtype.I32, Shape: shape.Shape{1, rows}}}, nil
}

func costSample(c Call) Cost { return Cost{Bytes: c.In[0].Bytes()} }

func referenceSample(c Call, in, out []Array, _ Args) {
	rows, v := c.In[0].Shape[1], c.In[0].Shape[2]
	for r := range rows {
		out[0].I[r] = samplingOf(in[1].I[r*SampleSettings : (r+1)*SampleSettings]).draw(in[0].F[r*v : (r+1)*v])
	}
}

// draw picks a token, by sorting all of them.
func (s Sampling) draw(logits []float64) int32 {
	scores, order := make([]float32, len(logits)), make([]int, len(logits))
	best := 0
	for i, l := range logits {
		if math.IsNaN(l) {
			return -1
		}
		if scores[i], order[i] = float32(l), i; s.Temperature > 0 {
			scores[i] /= s.Temperature
		}
		if scores[i] > scores[best] {
			best = i
		}
	}
	top := float64(scores[best])
	if math.IsInf(top, 0) {
		return -1
	}
	if s.Temperature <= 0 {
		return int32(best)
	}
	weight := func(i int) float64 { return math.Exp(float64(scores[i]) - top) }
	order = s.filter(scores, order, weight)
	left, last := totalWeight(order, weight)*float64(s.Stream.Uniform(s.Position)), order[0]
	for _, i := range order {
		w := weight(i)
		if w == 0 {
			continue
		}
		if last, left = i, left-w; left < 0 {
			break
		}
	}
	return int32(last)
}

func totalWeight(ids []int, weight func(int) float64) (all float64) {
	for _, i := range ids {
		all += weight(i)
	}
	return all
}

// filter is the tokens that top-k, top-p and min-p leave of some, in the order of their ids. The most likely
// one weighs 1.
func (s Sampling) filter(scores []float32, order []int, weight func(int) float64) []int {
	slices.SortStableFunc(order, func(a, b int) int { // the most likely last, of equal ones the highest id
		switch {
		case scores[a] < scores[b]:
			return -1
		case scores[a] > scores[b]:
			return 1
		}
		return a - b
	})
	top := scores[order[len(order)-1]]
	for len(order) > 0 && math.IsInf(float64(scores[order[0]]), -1) {
		order = order[1:]
	}
	if k := int(s.TopK); k > 0 && k < len(order) {
		least := scores[order[len(order)-k]]
		first := slices.IndexFunc(order, func(i int) bool { return scores[i] >= least })
		order = order[first:]
	}
	if s.Drop > 0 {
		all, gone := totalWeight(order, weight), 0.0
		for len(order) > 1 {
			if gone += float64(float32(float64(float32(weight(order[0]))) / all)); float32(gone) > s.Drop {
				break
			}
			order = order[1:]
		}
	}
	if s.MinP > 0 {
		all := totalWeight(order, weight)
		least := s.MinP * float32(1/all)
		order = slices.DeleteFunc(order, func(i int) bool { return scores[i] != top && float32(weight(i)/all) < least })
	}
	slices.Sort(order)
	return order
}

func (l *CaseList) sample() {
	settings := func(list ...Sampling) Operand {
		return Integers(func(i int, _ float64) int32 {
			row := make([]int32, SampleSettings)
			list[i/SampleSettings].Put(row)
			return row[i%SampleSettings]
		}, 1, len(list), SampleSettings)
	}
	at := func(s Sampling, n uint64) Sampling {
		s.Stream, s.Position = NewStream(7, uint32(n)), 100*n+3
		return s
	}
	l.Add("greedy", Sample, Attr{}, l.Sized(4, 1, 3, 1000), settings(Sampling{}, Sampling{}, Sampling{}))
	l.Add("equal", Sample, Attr{}, l.Constant(0.5, 1, 2, 70), settings(Sampling{}, at(Sampling{Temperature: 1, TopK: 3}, 1)))
	var all []Sampling
	for n := range uint64(24) {
		s := Sampling{Temperature: []float32{1, 0.7, 1.5}[n%3]}
		if n&1 > 0 {
			s.TopK = int32(5 + 11*n)
		}
		if n&2 > 0 {
			s.Drop = 0.1 + 0.03*float32(n%8)
		}
		if n&4 > 0 {
			s.MinP = 0.02 * float32(1+n%5)
		}
		all = append(all, at(s, n))
	}
	l.Add("all ways", Sample, Attr{}, l.Sized(8, 1, len(all), 3001), settings(all...))
	l.Add("large", Sample, Attr{}, l.Sized(10, 1, 6, 50257), settings(all[1], all[2], all[3], all[7], all[12], all[18])).Large = true
}
