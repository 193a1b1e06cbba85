package op

import "math"

// attentionCase: batch, queries, keys, width of a head.
type attentionCase struct {
	name       string
	attr       Attr
	b, t, s, d int
	segments   Operand
	keyMask    Operand
	mask       Operand
	big        bool
}

func (l *CaseList) attention() {
	one := Attr{Heads: 1, KVHeads: 1, Scale: 0.5}
	causal := Attr{Heads: 2, KVHeads: 2, Scale: 0.4, Causal: true}
	grouped := Attr{Heads: 4, KVHeads: 2, Scale: 0.35, Causal: true}
	for _, c := range []attentionCase{
		{name: "1x1", attr: one, b: 1, t: 1, s: 1, d: 3},
		{name: "full", attr: one, b: 2, t: 5, s: 5, d: 8},
		{name: "cross", attr: Attr{Heads: 3, KVHeads: 3, Scale: 0.5}, b: 2, t: 7, s: 4, d: 5},
		{name: "causal", attr: causal, b: 2, t: 7, s: 7, d: 5},
		{name: "more keys", attr: grouped, b: 2, t: 3, s: 8, d: 5},
		{name: "1 query", attr: grouped, b: 1, t: 1, s: 9, d: 16},
		{name: "grouped", attr: grouped, b: 2, t: 6, s: 6, d: 4},
		{name: "1 key head", attr: Attr{Heads: 3, KVHeads: 1, Scale: 0.3}, b: 1, t: 5, s: 5, d: 6},
		{name: "window", attr: with(grouped, func(a *Attr) { a.Window = 3 }), b: 1, t: 9, s: 9, d: 4},
		{name: "window 1", attr: with(causal, func(a *Attr) { a.Window = 1 }), b: 1, t: 4, s: 4, d: 4},
		{name: "window more keys", attr: with(causal, func(a *Attr) { a.Window = 4 }), b: 1, t: 3, s: 9, d: 4},
		{name: "packed", attr: grouped, b: 2, t: 9, s: 9, d: 4, segments: documents(4, 2, 9)},
		{name: "packed full", attr: one, b: 2, t: 8, s: 8, d: 4, segments: documents(3, 2, 8)},
		{name: "padded keys", attr: one, b: 2, t: 6, s: 6, d: 4, keyMask: padding(4, 2, 6)},
		{name: "no keys", attr: one, b: 2, t: 3, s: 5, d: 4, keyMask: padding(0, 2, 5)},
		{name: "causal no first keys", attr: causal, b: 1, t: 6, s: 6, d: 4, keyMask: Integers(func(i int, _ float64) int32 { return int32(i / 3) }, 1, 6)},
		{name: "mask", attr: causal, b: 2, t: 6, s: 6, d: 4, mask: someInf(6, 6)},
		{name: "mask hides a row", attr: one, b: 1, t: 4, s: 6, d: 4, mask: rowInf(2, 4, 6)},
		{name: "all masks", attr: with(grouped, func(a *Attr) { a.Window = 5 }), b: 2, t: 9, s: 9, d: 4, segments: documents(5, 2, 9), keyMask: padding(7, 2, 9), mask: someInf(9, 9)},
		{name: "mask by head", attr: grouped, b: 2, t: 6, s: 6, d: 4, mask: someInf(4, 6, 6)},
		{name: "mask by sample", attr: one, b: 3, t: 5, s: 7, d: 4, keyMask: padding(5, 3, 7), mask: someInf(3, 1, 5, 7)},
		{name: "mask by sample and head", attr: causal, b: 2, t: 5, s: 8, d: 5, mask: someInf(2, 2, 5, 8)},
		{name: "mask of one head", attr: causal, b: 2, t: 4, s: 4, d: 4, mask: someInf(1, 1, 4, 4)},
		{name: "mask and dropout", attr: with(grouped, func(a *Attr) { a.Prob, a.Stream = 0.3, 7 }), b: 2, t: 6, s: 6, d: 4, mask: someInf(1, 4, 6, 6)},
		{name: "dropout", attr: with(grouped, func(a *Attr) { a.Prob, a.Stream = 0.3, 7 }), b: 2, t: 6, s: 6, d: 4},
		{name: "dropout cross", attr: with(one, func(a *Attr) { a.Prob, a.Stream = 0.5, 1 }), b: 2, t: 3, s: 7, d: 4},
		{name: "130 causal", attr: with(causal, func(a *Attr) { a.Scale = 0.125 }), b: 1, t: 130, s: 130, d: 64, big: true},
		{name: "130 window packed", attr: with(grouped, func(a *Attr) { a.Window = 37 }), b: 1, t: 130, s: 130, d: 24, segments: documents(70, 1, 130), big: true},
		{name: "130 full", attr: Attr{Heads: 1, KVHeads: 1, Scale: 0.1}, b: 1, t: 67, s: 130, d: 80, big: true},
		{name: "130 mask by head", attr: with(grouped, func(a *Attr) { a.Scale = 0.2 }), b: 2, t: 67, s: 130, d: 32, mask: someInf(4, 67, 130), big: true},
		{name: "130 mask by sample", attr: Attr{Heads: 2, KVHeads: 1, Scale: 0.125}, b: 2, t: 130, s: 97, d: 64, keyMask: padding(90, 2, 97), mask: someInf(2, 1, 130, 97), big: true},
		{name: "130 mask of all, dropout", attr: with(causal, func(a *Attr) { a.Scale, a.Prob, a.Stream = 0.1, 0.2, 3 }), b: 2, t: 130, s: 130, d: 128, mask: someInf(130, 130), big: true},
	} {
		l.attentionBoth(c)
	}
}

// attentionBoth adds a case and its gradients.
func (l *CaseList) attentionBoth(c attentionCase) {
	a := c.attr
	q := l.Sized(2, c.b, c.t, int(a.Heads)*c.d)
	k := l.Sized(2, c.b, c.s, int(a.KVHeads)*c.d)
	masks := c.masks(&a)
	l.Add(c.name, Attention, a, append([]Operand{q, k, k}, masks...)...).Large = c.big

	lse := FilledF32(func(Array, func(int) float64) {}, c.b, int(a.Heads), c.t)
	for _, kind := range []Kind{AttentionGrad, AttentionMaskGrad} {
		if kind == AttentionMaskGrad && !a.Mask {
			continue
		}
		grad := l.Add(c.name, kind, a, append([]Operand{q, k, k, q, lse, q}, masks...)...)
		grad.Large = c.big
		call, args := grad.Call, grad.Args
		grad.derived = func(in []Array) { forwardOf(call, in, args) }
	}
}

// masks lists the optional operands and sets their attributes.
func (c attentionCase) masks(a *Attr) (in []Operand) {
	for _, m := range []struct {
		o    Operand
		flag *bool
	}{{c.segments, &a.Segments}, {c.keyMask, &a.KeyMask}, {c.mask, &a.Mask}} {
		if m.o.Fill != nil {
			*m.flag = true
			in = append(in, m.o)
		}
	}
	return in
}

// forwardOf fills o and lse of the operands of an attention gradient.
func forwardOf(c Call, in []Array, args Args) {
	forward := Call{Kind: Attention, Attr: c.Attr, In: append(c.In[:3:3], c.In[6:]...), Out: []Type{c.In[3], c.In[4]}}
	referenceAttention(forward, append(in[:3:3], in[6:]...), []Array{in[3], in[4]}, args)
}

func with(a Attr, f func(*Attr)) Attr {
	f(&a)
	return a
}

// documents of a given length packed into rows.
func documents(length, b, s int) Operand {
	return Integers(func(i int, _ float64) int32 { return int32(i % s / length) }, b, s)
}

// padding hides the keys from position n on in odd samples.
func padding(n, b, s int) Operand {
	return Integers(func(i int, _ float64) int32 {
		if i/s%2 == 1 && i%s >= n {
			return 0
		}
		return 1
	}, b, s)
}

// someInf is an additive mask with -inf at about a fifth of its places.
func someInf(dims ...int) Operand {
	return FilledF32(fillBy(func(_ int, u float64) float64 {
		if u < 0.2 {
			return math.Inf(-1)
		}
		return 2*u - 1
	}), dims...)
}

// rowInf is an additive mask that hides everything from one query.
func rowInf(row, t, s int) Operand {
	return FilledF32(func(a Array, _ func(int) float64) {
		for j := range s {
			a.F[row*s+j] = math.Inf(-1)
		}
	}, t, s)
}
