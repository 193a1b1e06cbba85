package op

import (
	"fmt"
	"math"

	"spillway/dtype"
	"spillway/quant"
)

// Cases of positions, attention, losses and updates.

func (l *CaseList) rope() {
	positions := func(dims ...int) Operand { return Below(300, dims...) }
	for _, c := range []struct {
		name string
		attr Attr
		x    [3]int
		half int
	}{
		{"whole heads", Attr{Heads: 3}, [3]int{2, 5, 18}, 3},
		{"part of heads", Attr{Heads: 2}, [3]int{2, 4, 22}, 4},
		{"1 position", Attr{Heads: 1}, [3]int{1, 1, 2}, 1},
		{"scaled", Attr{Heads: 2, Scale: 1.25}, [3]int{1, 7, 20}, 4},
		{"64 wide", Attr{Heads: 4}, [3]int{2, 9, 256}, 32},
	} {
		x := l.X(c.x[0], c.x[1], c.x[2])
		l.Add(c.name, Rope, c.attr, x, positions(c.x[0], c.x[1]), frequencies(c.half))
		c.attr.Inverse = true
		l.Add(c.name+" inverse", Rope, c.attr, x, positions(c.x[0], c.x[1]), frequencies(c.half))
	}
	alike := Integers(func(i int, _ float64) int32 { return int32(i % 6 * 40) }, 3, 6)
	l.Add("samples alike", Rope, Attr{Heads: 2}, l.X(3, 6, 20), alike, frequencies(5))
}

// frequencies of rotary positions, base 10000.
func frequencies(half int) Operand {
	return FilledF32(func(a Array, _ func(int) float64) {
		for i := range a.F {
			a.F[i] = math.Pow(10000, -float64(i)/float64(half))
		}
	}, half)
}

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
		{name: "dropout", attr: with(grouped, func(a *Attr) { a.Prob, a.Stream = 0.3, 7 }), b: 2, t: 6, s: 6, d: 4},
		{name: "dropout cross", attr: with(one, func(a *Attr) { a.Prob, a.Stream = 0.5, 1 }), b: 2, t: 3, s: 7, d: 4},
		{name: "130 causal", attr: with(causal, func(a *Attr) { a.Scale = 0.125 }), b: 1, t: 130, s: 130, d: 64, big: true},
		{name: "130 window packed", attr: with(grouped, func(a *Attr) { a.Window = 37 }), b: 1, t: 130, s: 130, d: 24, segments: documents(70, 1, 130), big: true},
		{name: "130 full", attr: Attr{Heads: 1, KVHeads: 1, Scale: 0.1}, b: 1, t: 67, s: 130, d: 80, big: true},
	} {
		l.attentionBoth(c)
	}
}

// attentionBoth adds a case and its gradient.
func (l *CaseList) attentionBoth(c attentionCase) {
	a := c.attr
	q := l.Sized(2, c.b, c.t, int(a.Heads)*c.d)
	k := l.Sized(2, c.b, c.s, int(a.KVHeads)*c.d)
	masks := c.masks(&a)
	l.Add(c.name, Attention, a, append([]Operand{q, k, k}, masks...)...).Large = c.big

	lse := FilledF32(func(Array, func(int) float64) {}, c.b, int(a.Heads), c.t)
	grad := l.Add(c.name, AttentionGrad, a, append([]Operand{q, k, k, q, lse, q}, masks...)...)
	grad.Large = c.big
	call, args := grad.Call, grad.Args
	grad.derived = func(in []Array) { forwardOf(call, in, args) }
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
func someInf(t, s int) Operand {
	return FilledF32(func(a Array, u func(int) float64) {
		for i := range a.F {
			a.F[i] = 2*u(i) - 1
			if u(i) < 0.2 {
				a.F[i] = math.Inf(-1)
			}
		}
	}, t, s)
}

// rowInf is an additive mask that hides everything from one query.
func rowInf(row, t, s int) Operand {
	return FilledF32(func(a Array, _ func(int) float64) {
		for j := range s {
			a.F[row*s+j] = math.Inf(-1)
		}
	}, t, s)
}

// targets are classes, every third one ignored if some are.
func targets(classes int, some bool, dims ...int) Operand {
	return Integers(func(i int, u float64) int32 {
		if some && i%3 == 1 {
			return IgnoreIndex
		}
		return int32(u * float64(classes))
	}, dims...)
}

func (l *CaseList) losses() {
	scale, seed := scalar(0.25), scalar(1.5)
	ignored := Integers(func(int, float64) int32 { return IgnoreIndex }, 4)
	l.linearLoss("9x6x11", l.X(9, 6), l.X(11, 6), targets(11, true, 9), false)
	l.linearLoss("samples", l.X(2, 4, 6), l.X(7, 6), targets(7, false, 2, 4), false)
	l.linearLoss("1 row", l.X(1, 33), l.X(17, 33), targets(17, false, 1), false)
	l.linearLoss("1 class", l.X(3, 5), l.X(1, 5), targets(1, false, 3), false)
	l.linearLoss("all ignored", l.X(4, 5), l.X(9, 5), ignored, false)
	l.linearLoss("sure", l.Sized(8, 5, 16), l.Sized(8, 13, 16), targets(13, true, 5), false)
	l.linearLoss("67x33x1025", l.X(67, 33), l.X(1025, 33), targets(1025, true, 67), true)
	for _, c := range []struct {
		name           string
		logits, target Operand
	}{
		{"9x11", l.X(9, 11), targets(11, true, 9)},
		{"samples", l.Sized(4, 2, 4, 7), targets(7, true, 2, 4)},
		{"1 row", l.X(1, 129), targets(129, false, 1)},
		{"all ignored", l.X(4, 5), ignored},
		{"sure", l.Sized(60, 5, 13), targets(13, false, 5)},
	} {
		l.Add(c.name, CrossEntropy, Attr{}, c.logits, c.target, scale)
		l.Add(c.name, CrossEntropyGrad, Attr{}, c.logits, c.target, scale, seed)
	}
	for _, dims := range [][]int{{3, 7}, {1}, {2, 5, 33}} {
		x := l.X(dims...)
		name := x.Type.Shape.String()
		l.Add(name, MeanSquare, Attr{}, x, x, scale)
		l.Add(name, MeanSquareGrad, Attr{}, x, x, scale, seed)
	}
}

// linearLoss adds a loss and the forms of its gradient.
func (l *CaseList) linearLoss(name string, x, w, target Operand, big bool) {
	scale, seed := scalar(0.25), scalar(1.5)
	l.Add(name, LinearCrossEntropy, Attr{}, x, w, target, scale).Large = big
	for _, form := range []struct {
		name string
		attr Attr
	}{{"", Attr{}}, {" accumulate", Attr{Accumulate: true}}, {" input only", Attr{InputOnly: true}}} {
		l.Add(name+form.name, LinearCrossEntropyGrad, form.attr, x, w, target, scale, seed).Large = big
	}
}

func (l *CaseList) updates() {
	for _, dims := range [][]int{{1}, {3, 43}, {1031}} {
		l.Both(l.X(dims...).Type.Shape.String(), SumSquares, Attr{}, l.X(dims...))
	}
	partials := Operand{Type{dtype.F64, []int64{5}}, func(a Array, u func(int) float64) {
		for i := range a.F {
			a.F[i] = 4 * u(i)
		}
	}}
	l.Add("clips", ClipScale, Attr{}, partials).Args.Scalars[ArgMaxNorm] = 0.5
	l.Add("leaves", ClipScale, Attr{}, partials).Args.Scalars[ArgMaxNorm] = 1000
	l.Add("off", ClipScale, Attr{}, partials)
	scaled := [8]float32{ArgMaxNorm: 0.5, ArgScale: 4}
	l.Add("scaled", ClipScale, Attr{}, partials).Args.Scalars = scaled
	l.Add("overflown", ClipScale, Attr{}, Operand{partials.Type, func(a Array, u func(int) float64) {
		partials.Fill(a, u)
		a.F[2] = math.Inf(1)
	}}).Args.Scalars = scaled
	for _, n := range []int{1, 77, 1031} {
		l.adam(n)
		l.sgd(n)
		l.lion(n)
	}
	for _, dims := range [][]int{{1}, {1031}, {5, 7}, {33, 129}, {600, 3}, {2, 9, 70}} {
		l.adafactor(dims...)
	}
}

func (l *CaseList) adafactor(dims ...int) {
	positive := func(a Array, u func(int) float64) {
		for i := range a.F {
			a.F[i] = 0.1 + u(i)
		}
	}
	w, g, clip := FilledF32(Spread, dims...), l.X(dims...), Numbers(0.75, 2)
	var squares []Operand
	for _, s := range factored(w.Type.Shape) {
		squares = append(squares, Operand{Type{dtype.F32, s}, positive})
	}
	name := w.Type.Shape.String()
	add := func(what string, attr Attr, args [8]float32, kept ...Operand) {
		in := append([]Operand{w, g}, kept...)
		l.Add(name+what, Adafactor, attr, append(append(in, squares...), clip)...).Args.Scalars = args
	}
	relative := [8]float32{ArgRate: 1e-2, ArgTake: 0.4, ArgEps: 1e-30, ArgLeastScale: 1e-3, ArgThreshold: 1}
	fixed := [8]float32{ArgRate: 1e-2, ArgDecay: 0.1, ArgBeta1: 0.9, ArgTake: 0.2, ArgEps: 1e-30, ArgThreshold: 0.5}
	add("", Attr{}, relative)
	add(" at a fixed rate, copy", Attr{To: dtype.BF16}, fixed)
	w.Type.DType = dtype.BF16
	add(" bf16", Attr{}, relative)
	w.Type.DType = dtype.F32
	add(" first iteration", Attr{}, [8]float32{ArgRate: 1e-2, ArgTake: 1, ArgEps: 1e-30, ArgLeastScale: 1e-3, ArgThreshold: 1})
	for _, kept := range []dtype.Type{dtype.F32, dtype.BF16} {
		add(" with a mean in "+kept.String(), Attr{}, fixed, SpreadAs(kept, dims...))
	}
}

func (l *CaseList) adam(n int) {
	w, g, m := FilledF32(Spread, n), l.X(n), FilledF32(Spread, n)
	v := FilledF32(func(a Array, u func(int) float64) {
		for i := range a.F {
			a.F[i] = u(i)
		}
	}, n)
	zeros := FilledF32(func(Array, func(int) float64) {}, n)
	clip := Numbers(0.75, 2)
	later := [8]float32{ArgRate: 1e-2, ArgDecay: 0.1, ArgBeta1: 0.9, ArgBeta2: 0.999, ArgEps: 1e-8, ArgBias1: 0.271, ArgBias2: 0.0547}
	start := [8]float32{ArgRate: 1e-2, ArgBeta1: 0.9, ArgBeta2: 0.95, ArgEps: 1e-8, ArgBias1: 0.1, ArgBias2: 0.2236068}
	name := w.Type.Shape.String()
	l.Add(name, Adam, Attr{}, w, g, m, v, clip).Args.Scalars = later
	l.Add(name+" decoupled", Adam, Attr{Decoupled: true}, w, g, m, v, clip).Args.Scalars = later
	l.Add(name+" first iteration", Adam, Attr{Decoupled: true}, w, g, zeros, zeros, clip).Args.Scalars = start
	l.Add(name+" copy", Adam, Attr{Decoupled: true, To: dtype.BF16}, w, g, m, v, clip).Args.Scalars = later

	m8, v8, zeros8 := m, v, zeros
	m8.Type.DType, v8.Type.DType, zeros8.Type.DType = quant.Dyn8, quant.UDyn8, quant.Dyn8
	eight := l.Add(name+" 8-bit", Adam, Attr{}, w, g, m8, v8, clip)
	eight.Args.Scalars, eight.Large = later, n > 1000
	pure := w
	pure.Type.DType = dtype.BF16
	randomly := l.Add(name+" pure", Adam, Attr{Decoupled: true}, pure, g, m, v, clip)
	randomly.Args.Scalars, randomly.Args.Key, randomly.Args.Row = later, 77, 1000
	nothing := Numbers(0, 2)
	l.Add(name+" pure left", Adam, Attr{}, pure, g, m, v, nothing).Args = randomly.Args
	l.Add(name+" left", Adam, Attr{To: dtype.BF16}, w, g, m, v, nothing).Args.Scalars = later
	l.Add(name+" 8-bit left", Adam, Attr{}, w, g, m8, v8, nothing).Args.Scalars = later
	l.Add(name+" 8-bit first iteration", Adam, Attr{Decoupled: true}, w, g, zeros8, Operand{v8.Type, zeros.Fill}, clip).Args.Scalars = start
	l.Add(name+" 8-bit copy", Adam, Attr{Decoupled: true, To: dtype.BF16}, w, g, m8, v8, clip).Args.Scalars = later
	for _, kept := range [][2]dtype.Type{{dtype.BF16, dtype.BF16}, {dtype.F16, dtype.F16}, {quant.Dyn8, dtype.F32}, {quant.Dyn8, dtype.F16}, {dtype.BF16, quant.UDyn8}, {dtype.F32, dtype.BF16}} {
		m.Type.DType, v.Type.DType = kept[0], kept[1]
		l.Add(fmt.Sprintf("%s %v and %v", name, kept[0], kept[1]), Adam, Attr{Decoupled: true, To: dtype.BF16}, w, g, m, v, clip).Args.Scalars = later
	}
}

func (l *CaseList) sgd(n int) {
	w, g, m, clip := FilledF32(Spread, n), l.X(n), FilledF32(Spread, n), Numbers(0.75, 2)
	name := w.Type.Shape.String()
	for _, c := range []struct {
		name                         string
		attr                         Attr
		momentum, dampening, isFirst float32
	}{
		{"plain", Attr{}, 0, 0, 0},
		{"momentum", Attr{}, 0.9, 0, 0},
		{"momentum first iteration", Attr{}, 0.9, 0.5, 1},
		{"dampened", Attr{}, 0.9, 0.5, 0},
		{"nesterov", Attr{Nesterov: true}, 0.9, 0, 0},
		{"copy", Attr{To: dtype.BF16}, 0.9, 0, 0},
	} {
		l.Add(name+" "+c.name, SGD, c.attr, w, g, m, clip).Args.Scalars =
			[8]float32{ArgRate: 0.05, ArgDecay: 0.01, ArgBeta1: c.momentum, ArgBeta2: c.dampening, ArgBias1: c.isFirst}
	}
	for _, kept := range []dtype.Type{dtype.BF16, dtype.F16, quant.Dyn8} {
		l.Add(fmt.Sprintf("%s %v", name, kept), SGD, Attr{}, w, g, SpreadAs(kept, n), clip).Args.Scalars = [8]float32{ArgRate: 0.05, ArgDecay: 0.01, ArgBeta1: 0.9}
	}
	pure := w
	pure.Type.DType = dtype.BF16
	l.Add(name+" pure", SGD, Attr{}, pure, g, m, clip).Args = Args{Scalars: [8]float32{ArgRate: 0.05, ArgBeta1: 0.9}, Key: 78}
	l.Add(name+" left", SGD, Attr{}, w, g, m, Numbers(0, 2)).Args.Scalars = [8]float32{ArgRate: 0.05, ArgDecay: 0.01, ArgBeta1: 0.9}
	l.Add(name+" without m", SGD, Attr{}, w, g, clip).Args.Scalars = [8]float32{ArgRate: 0.05, ArgDecay: 0.01}
}

func (l *CaseList) lion(n int) {
	w, g, m, clip := FilledF32(Spread, n), l.X(n), FilledF32(Spread, n), Numbers(0.75, 2)
	args := [8]float32{ArgRate: 1e-2, ArgDecay: 0.1, ArgBeta1: 0.9, ArgBeta2: 0.99}
	name := w.Type.Shape.String()
	l.Add(name, Lion, Attr{}, w, g, m, clip).Args.Scalars = args
	l.Add(name+" first iteration", Lion, Attr{}, w, g, FilledF32(func(Array, func(int) float64) {}, n), clip).Args.Scalars = args
	for _, kept := range []dtype.Type{dtype.BF16, dtype.F16, quant.Dyn8} {
		l.Add(fmt.Sprintf("%s %v", name, kept), Lion, Attr{}, w, g, SpreadAs(kept, n), clip).Args.Scalars = args
	}
	pure := w
	pure.Type.DType = dtype.BF16
	l.Add(name+" pure", Lion, Attr{}, pure, g, m, clip).Args = Args{Scalars: args, Key: 79}
	l.Add(name+" left", Lion, Attr{}, w, g, m, Numbers(0, 2)).Args.Scalars = args
	l.Add(name+" copy", Lion, Attr{To: dtype.BF16}, w, g, m, clip).Args.Scalars = args
}
