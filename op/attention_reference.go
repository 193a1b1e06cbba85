package op

import "math"

// attention is one call with its operands by name.
type attention struct {
	Call
	args                   Args
	b, t, s, h, kv, d      int64
	q, k, v                []float64
	segments, keyMask      []int32
	mask                   []float64
	maskSample, maskHead   int64     // steps of the mask
	o, lse, do, dq, dk, dv []float64 // of the gradient
}

func newAttention(c Call, in []Array, optional int, args Args) *attention {
	q, k := c.In[0].Shape, c.In[1].Shape
	a := &attention{Call: c, args: args, b: q[0], t: q[1], s: k[1], h: c.Attr.Heads, kv: c.Attr.KVHeads, d: q[2] / c.Attr.Heads}
	a.q, a.k, a.v = in[0].F, in[1].F, in[2].F
	if c.Attr.Segments {
		a.segments = in[optional].I
		optional++
	}
	if c.Attr.KeyMask {
		a.keyMask = in[optional].I
		optional++
	}
	if c.Attr.Mask {
		a.mask = in[optional].F
		a.maskSample, a.maskHead = c.In[optional].MaskSteps()
	}
	return a
}

// sees says whether query i of sample b may look at key j.
func (a *attention) sees(b, i, j int64) bool {
	at := i + a.s - a.t // the query's position among the keys
	switch {
	case a.Attr.Causal && j > at:
		return false
	case a.Attr.Window > 0 && j <= at-a.Attr.Window:
		return false
	case a.segments != nil && a.segments[b*a.s+at] != a.segments[b*a.s+j]:
		return false
	}
	return a.keyMask == nil || a.keyMask[b*a.s+j] != 0
}

// score of query i and key j under head h of sample b; -inf where it sees nothing.
func (a *attention) score(b, h, i, j int64) float64 {
	if !a.sees(b, i, j) {
		return math.Inf(-1)
	}
	score := a.Attr.Scale * dot(a.query(a.q, b, h, i), a.key(a.k, b, h, j))
	if a.mask != nil {
		score += a.mask[a.maskAt(b, h, i, j)]
	}
	return score
}

// maskAt is where the mask of a pair is.
func (a *attention) maskAt(b, h, i, j int64) int64 { return b*a.maskSample + h*a.maskHead + i*a.s + j }

// query is row i of head h in q, o or their gradients.
func (a *attention) query(x []float64, b, h, i int64) []float64 {
	at := ((b*a.t+i)*a.h + h) * a.d
	return x[at : at+a.d]
}

// key is row j of the key-value head that head h shares, in k, v or their gradients.
func (a *attention) key(x []float64, b, h, j int64) []float64 {
	at := ((b*a.s+j)*a.kv + h*a.kv/a.h) * a.d
	return x[at : at+a.d]
}

// drop is the factor of dropout on the weight of query i and key j.
func (a *attention) drop(b, h, i, j int64) float64 {
	if a.Attr.Prob == 0 {
		return 1
	}
	row := (a.args.Row+uint64(b))*uint64(a.h) + uint64(h)
	if NewStream(a.args.Key, a.Attr.Stream).Line(row*uint64(a.t)+uint64(i)).Bits(uint32(j)) < LineLimit(a.Attr.Prob) {
		return 0
	}
	return 1 / (1 - a.Attr.Prob)
}

// rowsDo calls f for each query row.
func (a *attention) rowsDo(f func(b, h, i int64)) {
	for b := range a.b {
		for h := range a.h {
			for i := range a.t {
				f(b, h, i)
			}
		}
	}
}

func referenceAttention(c Call, in, out []Array, args Args) {
	a := newAttention(c, in, 3, args)
	clear(out[0].F)
	a.rowsDo(func(b, h, i int64) {
		lse := a.logSum(b, h, i)
		out[1].F[(b*a.h+h)*a.t+i] = lse
		for j := range a.s {
			axpy(a.weight(b, h, i, j, lse)*a.drop(b, h, i, j), a.key(a.v, b, h, j), a.query(out[0].F, b, h, i))
		}
	})
}

// logSum is the logarithm of the sum of exponentials of a row of scores.
func (a *attention) logSum(b, h, i int64) float64 {
	scores := make([]float64, a.s)
	for j := range a.s {
		scores[j] = a.score(b, h, i, j)
	}
	return logSumExp(scores)
}

// weight is softmax's, before dropout; 0 in a row that sees nothing.
func (a *attention) weight(b, h, i, j int64, lse float64) float64 {
	score := a.score(b, h, i, j)
	if math.IsInf(score, -1) {
		return 0
	}
	return math.Exp(score - lse)
}

// With w the weights and e = drop·(do·v): dv = drop·w·do, ds = w·(e - do·o).
func referenceAttentionGrad(c Call, in, out []Array, args Args) {
	a := newAttention(c, in, 6, args)
	a.o, a.lse, a.do = in[3].F, in[4].F, in[5].F
	a.dq, a.dk, a.dv = out[0].F, out[1].F, out[2].F
	clear(a.dq)
	clear(a.dk)
	clear(a.dv)
	a.rowsDo(a.gradRow)
}

func (a *attention) gradRow(b, h, i int64) {
	do := a.query(a.do, b, h, i)
	total := dot(do, a.query(a.o, b, h, i))
	for j := range a.s {
		w := a.weight(b, h, i, j, a.lse[(b*a.h+h)*a.t+i])
		if w == 0 {
			continue
		}
		drop := a.drop(b, h, i, j)
		axpy(drop*w, do, a.key(a.dv, b, h, j))
		ds := a.Attr.Scale * w * (drop*dot(do, a.key(a.v, b, h, j)) - total)
		axpy(ds, a.key(a.k, b, h, j), a.query(a.dq, b, h, i))
		axpy(ds, a.query(a.q, b, h, i), a.key(a.dk, b, h, j))
	}
}

// The gradient of a mask is that of the scores it is added to: ds without the scale.
func referenceAttentionMaskGrad(c Call, in, out []Array, args Args) {
	a := newAttention(c, in, 6, args)
	o, lse, do := in[3].F, in[4].F, in[5].F
	clear(out[0].F)
	a.rowsDo(func(b, h, i int64) {
		total := dot(a.query(do, b, h, i), a.query(o, b, h, i))
		for j := range a.s {
			if w := a.weight(b, h, i, j, lse[(b*a.h+h)*a.t+i]); w != 0 {
				out[0].F[a.maskAt(b, h, i, j)] += w * (a.drop(b, h, i, j)*dot(a.query(do, b, h, i), a.key(a.v, b, h, j)) - total)
			}
		}
	})
}

// logSumExp is log Σ exp(x), -inf where all are.
func logSumExp(x []float64) float64 {
	top := math.Inf(-1)
	for _, f := range x {
		top = max(top, f)
	}
	if math.IsInf(top, -1) {
		return top
	}
	var sum float64
	for _, f := range x {
		sum += math.Exp(f - top)
	}
	return top + math.Log(sum)
}
