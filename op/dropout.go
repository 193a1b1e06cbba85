package op

import "fmt"

// Dropout: y = x/(1-p) where a random number of (key, stream, position) is at
// least p, else 0. It is its own gradient. Element i of sample s (the first
// dimension counts samples, Args.Row is the first one's global index) uses
// Uniform(key, stream, (Row+s)·elements per sample + i), compared with p as float32.
const Dropout Kind = "dropout"

func init() {
	Register(Op{Kind: Dropout, Takes: 1, Infer: inferDropout, Reference: referenceDropout, Cases: func(l *CaseList) {
		for _, p := range []float64{0, 0.1, 0.5, 0.9} {
			l.Add(fmt.Sprintf("p=%v", p), Dropout, Attr{Prob: p, Stream: 4}, l.X(3, 5, 11))
		}
		l.Add("1 sample", Dropout, Attr{Prob: 0.3, Stream: 1}, l.X(1, 130))
		l.Add("vector", Dropout, Attr{Prob: 0.3, Stream: 1}, l.X(9))
	}})
}

func inferDropout(a Attr, in []Type) ([]Type, error) {
	return []Type{in[0]}, check(float(in, 0), rank(in, 0, 1), probability(a.Prob))
}

func probability(p float64) error {
	if !(p >= 0 && p < 1) {
		return fmt.Errorf("drop probability is %v, want 0 ≤ p < 1", p)
	}
	return nil
}

func referenceDropout(c Call, in, out []Array, args Args) {
	first := args.Row * uint64(c.In[0].Shape[1:].Elements())
	for i, x := range in[0].F {
		out[0].F[i] = x * dropFactor(c.Attr, args, first+uint64(i))
	}
}

// dropFactor is what dropout multiplies the element at a position of its stream by.
func dropFactor(a Attr, args Args, position uint64) float64 {
	if Uniform(args.Key, a.Stream, position) < float32(a.Prob) {
		return 0
	}
	return 1 / (1 - a.Prob)
}
