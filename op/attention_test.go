package op

import (
	"math"
	"testing"

	"spillway/dtype"
)

// attentionByMatrix computes attention the way a textbook does: the matrix of
// scores of one head, hidden places set to -inf one rule after the other, softmax,
// dropout, times v. It shares nothing with the reference.
func attentionByMatrix(c Case, in []Array) []float64 {
	a := c.Call.Attr
	B, T, S := int(c.Call.In[0].Shape[0]), int(c.Call.In[0].Shape[1]), int(c.Call.In[1].Shape[1])
	H, K := int(a.Heads), int(a.KVHeads)
	D := int(c.Call.In[0].Shape[2]) / H
	out := make([]float64, B*T*H*D)
	for b := range B {
		for head := range H {
			shared := head / (H / K)
			scores := make([][]float64, T)
			for q := range scores {
				scores[q] = make([]float64, S)
				for k := range S {
					for d := range D {
						scores[q][k] += a.Scale * in[0].F[(b*T+q)*H*D+head*D+d] * in[1].F[(b*S+k)*K*D+shared*D+d]
					}
				}
			}
			hide(a, scores, in[3:], b, head)
			for q, row := range scores {
				weights := softmax(row)
				for k, w := range weights {
					line := ((c.Args.Row+uint64(b))*uint64(H)+uint64(head))*uint64(T) + uint64(q)
					if a.Prob > 0 {
						w /= 1 - a.Prob
						if float64(NewStream(c.Args.Key, a.Stream).Line(line).Bits(uint32(k)))/(1<<32) < float64(float32(a.Prob)) {
							w = 0
						}
					}
					for d := range D {
						out[(b*T+q)*H*D+head*D+d] += w * in[2].F[(b*S+k)*K*D+shared*D+d]
					}
				}
			}
		}
	}
	return out
}

// hide applies the masks of a head of sample b to a matrix of scores.
func hide(a Attr, scores [][]float64, masks []Array, b, head int) {
	T, S := len(scores), len(scores[0])
	each := func(hidden func(q, k int) bool) {
		for q := range scores {
			for k := range scores[q] {
				if hidden(q+S-T, k) {
					scores[q][k] = math.Inf(-1)
				}
			}
		}
	}
	if a.Causal {
		each(func(q, k int) bool { return k > q })
	}
	if a.Window > 0 {
		each(func(q, k int) bool { return q-k >= int(a.Window) })
	}
	if a.Segments {
		document := masks[0].I[b*S : b*S+S]
		each(func(q, k int) bool { return document[q] != document[k] })
		masks = masks[1:]
	}
	if a.KeyMask {
		seen := masks[0].I[b*S : b*S+S]
		each(func(_, k int) bool { return seen[k] == 0 })
		masks = masks[1:]
	}
	if a.Mask {
		samples, heads := 1, 1
		switch dims := masks[0].Type.Shape; len(dims) {
		case 4:
			samples, heads = int(dims[0]), int(dims[1])
		case 3:
			heads = int(dims[0])
		}
		of := b%samples*heads + head%heads // a number modulo 1 is 0
		for q := range scores {
			for k := range scores[q] {
				scores[q][k] += masks[0].F[(of*T+q)*S+k]
			}
		}
	}
}

// softmax of a row; zeros where every score is -inf.
func softmax(row []float64) []float64 {
	out := make([]float64, len(row))
	var sum float64
	for k, s := range row {
		out[k] = math.Exp(s)
		sum += out[k]
	}
	for k := range out {
		if sum > 0 {
			out[k] /= sum
		}
	}
	return out
}

func TestAttentionAgreesWithTheMatrixForm(t *testing.T) {
	tried := 0
	for _, c := range Cases(dtype.F32) {
		if c.Call.Kind != Attention {
			continue
		}
		tried++
		in := c.Operands()
		out := c.Outputs(in)
		if err := c.Call.Reference(in, out, c.Args); err != nil {
			t.Fatal(err)
		}
		for k, want := range attentionByMatrix(c, in) {
			if math.Abs(out[0].F[k]-want) > 1e-12 {
				t.Fatalf("%s: element %d is %v, the matrix form gives %v", c.Name, k, out[0].F[k], want)
			}
		}
	}
	if tried < 20 {
		t.Errorf("only %d cases", tried)
	}
}
