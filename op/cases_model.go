package op

import (
	"fmt"
	"math"

	"spillway/dtype"
)

// Cases of positions, attention, losses and updates.

func (l *caseList) rope() {
	positions := func(dims ...int) operand { return below(300, dims...) }
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
		x := l.x(c.x[0], c.x[1], c.x[2])
		l.add(c.name, Rope, c.attr, x, positions(c.x[0], c.x[1]), frequencies(c.half))
		c.attr.Inverse = true
		l.add(c.name+" inverse", Rope, c.attr, x, positions(c.x[0], c.x[1]), frequencies(c.half))
	}
	alike := integers(func(i int, _ float64) int32 { return int32(i % 6 * 40) }, 3, 6)
	l.add("samples alike", Rope, Attr{Heads: 2}, l.x(3, 6, 20), alike, frequencies(5))
}

// frequencies of rotary positions, base 10000.
func frequencies(half int) operand {
	return f32(func(a Array, _ func(int) float64) {
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
	segments   operand
	keyMask    operand
	mask       operand
	big        bool
}

func (l *caseList) attention() {
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
		{name: "causal no first keys", attr: causal, b: 1, t: 6, s: 6, d: 4, keyMask: integers(func(i int, _ float64) int32 { return int32(i / 3) }, 1, 6)},
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
func (l *caseList) attentionBoth(c attentionCase) {
	a := c.attr
	q := l.sized(2, c.b, c.t, int(a.Heads)*c.d)
	k := l.sized(2, c.b, c.s, int(a.KVHeads)*c.d)
	masks := c.masks(&a)
	l.add(c.name, Attention, a, append([]operand{q, k, k}, masks...)...).Big = c.big

	lse := f32(func(Array, func(int) float64) {}, c.b, int(a.Heads), c.t)
	grad := l.add(c.name, AttentionGrad, a, append([]operand{q, k, k, q, lse, q}, masks...)...)
	grad.Big = c.big
	call, args := grad.Call, grad.Args
	grad.derive = func(in []Array) { forwardOf(call, in, args) }
}

// masks lists the optional operands and sets their attributes.
func (c attentionCase) masks(a *Attr) (in []operand) {
	for _, m := range []struct {
		o    operand
		flag *bool
	}{{c.segments, &a.Segments}, {c.keyMask, &a.KeyMask}, {c.mask, &a.Mask}} {
		if m.o.f != nil {
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
func documents(length, b, s int) operand {
	return integers(func(i int, _ float64) int32 { return int32(i % s / length) }, b, s)
}

// padding hides the keys from position n on in odd samples.
func padding(n, b, s int) operand {
	return integers(func(i int, _ float64) int32 {
		if i/s%2 == 1 && i%s >= n {
			return 0
		}
		return 1
	}, b, s)
}

// someInf is an additive mask with -inf at about a fifth of its places.
func someInf(t, s int) operand {
	return f32(func(a Array, u func(int) float64) {
		for i := range a.F {
			a.F[i] = 2*u(i) - 1
			if u(i) < 0.2 {
				a.F[i] = math.Inf(-1)
			}
		}
	}, t, s)
}

// rowInf is an additive mask that hides everything from one query.
func rowInf(row, t, s int) operand {
	return f32(func(a Array, _ func(int) float64) {
		for j := range s {
			a.F[row*s+j] = math.Inf(-1)
		}
	}, t, s)
}

// targets are classes, every third one ignored if some are.
func targets(classes int, some bool, dims ...int) operand {
	return integers(func(i int, u float64) int32 {
		if some && i%3 == 1 {
			return Ignored
		}
		return int32(u * float64(classes))
	}, dims...)
}

func (l *caseList) losses() {
	scale, seed := scalar(0.25), scalar(1.5)
	ignored := integers(func(int, float64) int32 { return Ignored }, 4)
	l.linearLoss("9x6x11", l.x(9, 6), l.x(11, 6), targets(11, true, 9), false)
	l.linearLoss("samples", l.x(2, 4, 6), l.x(7, 6), targets(7, false, 2, 4), false)
	l.linearLoss("1 row", l.x(1, 33), l.x(17, 33), targets(17, false, 1), false)
	l.linearLoss("1 class", l.x(3, 5), l.x(1, 5), targets(1, false, 3), false)
	l.linearLoss("all ignored", l.x(4, 5), l.x(9, 5), ignored, false)
	l.linearLoss("sure", l.sized(8, 5, 16), l.sized(8, 13, 16), targets(13, true, 5), false)
	l.linearLoss("67x33x1025", l.x(67, 33), l.x(1025, 33), targets(1025, true, 67), true)
	for _, c := range []struct {
		name           string
		logits, target operand
	}{
		{"9x11", l.x(9, 11), targets(11, true, 9)},
		{"samples", l.sized(4, 2, 4, 7), targets(7, true, 2, 4)},
		{"1 row", l.x(1, 129), targets(129, false, 1)},
		{"all ignored", l.x(4, 5), ignored},
		{"sure", l.sized(60, 5, 13), targets(13, false, 5)},
	} {
		l.add(c.name, CrossEntropy, Attr{}, c.logits, c.target, scale)
		l.add(c.name, CrossEntropyGrad, Attr{}, c.logits, c.target, scale, seed)
	}
	for _, dims := range [][]int{{3, 7}, {1}, {2, 5, 33}} {
		x := l.x(dims...)
		name := x.t.Shape.String()
		l.add(name, MeanSquare, Attr{}, x, x, scale)
		l.add(name, MeanSquareGrad, Attr{}, x, x, scale, seed)
	}
}

// linearLoss adds a loss and the forms of its gradient.
func (l *caseList) linearLoss(name string, x, w, target operand, big bool) {
	scale, seed := scalar(0.25), scalar(1.5)
	l.add(name, LinearCrossEntropy, Attr{}, x, w, target, scale).Big = big
	for _, form := range []struct {
		name string
		attr Attr
	}{{"", Attr{}}, {" accumulate", Attr{Accumulate: true}}, {" input only", Attr{InputOnly: true}}} {
		l.add(name+form.name, LinearCrossEntropyGrad, form.attr, x, w, target, scale, seed).Big = big
	}
}

func (l *caseList) updates() {
	for _, dims := range [][]int{{1}, {3, 43}, {1031}} {
		l.both(l.x(dims...).t.Shape.String(), SumSquares, Attr{}, l.x(dims...))
	}
	partials := operand{Type{dtype.F64, []int64{5}}, func(a Array, u func(int) float64) {
		for i := range a.F {
			a.F[i] = 4 * u(i)
		}
	}}
	l.add("clips", ClipScale, Attr{}, partials).Args.F[ArgMaxNorm] = 0.5
	l.add("leaves", ClipScale, Attr{}, partials).Args.F[ArgMaxNorm] = 1000
	l.add("off", ClipScale, Attr{}, partials)
	scaled := [8]float32{ArgMaxNorm: 0.5, ArgScale: 4}
	l.add("scaled", ClipScale, Attr{}, partials).Args.F = scaled
	l.add("overflown", ClipScale, Attr{}, operand{partials.t, func(a Array, u func(int) float64) {
		partials.f(a, u)
		a.F[2] = math.Inf(1)
	}}).Args.F = scaled
	for _, n := range []int{1, 77, 1031} {
		l.adam(n)
		l.sgd(n)
		l.lion(n)
	}
	for _, dims := range [][]int{{1}, {1031}, {5, 7}, {33, 129}, {600, 3}, {2, 9, 70}} {
		l.adafactor(dims...)
	}
}

func (l *caseList) adafactor(dims ...int) {
	positive := func(a Array, u func(int) float64) {
		for i := range a.F {
			a.F[i] = 0.1 + u(i)
		}
	}
	w, g, clip := f32(spread, dims...), l.x(dims...), numbers(0.75, 2)
	var squares []operand
	for _, s := range factored(w.t.Shape) {
		squares = append(squares, operand{Type{dtype.F32, s}, positive})
	}
	name := w.t.Shape.String()
	add := func(what string, attr Attr, args [8]float32, kept ...operand) {
		in := append([]operand{w, g}, kept...)
		l.add(name+what, Adafactor, attr, append(append(in, squares...), clip)...).Args.F = args
	}
	relative := [8]float32{ArgRate: 1e-2, ArgTake: 0.4, ArgEps: 1e-30, ArgLeastScale: 1e-3, ArgThreshold: 1}
	fixed := [8]float32{ArgRate: 1e-2, ArgDecay: 0.1, ArgBeta1: 0.9, ArgTake: 0.2, ArgEps: 1e-30, ArgThreshold: 0.5}
	add("", Attr{}, relative)
	add(" at a fixed rate, copy", Attr{To: dtype.BF16}, fixed)
	w.t.DType = dtype.BF16
	add(" bf16", Attr{}, relative)
	w.t.DType = dtype.F32
	add(" first iteration", Attr{}, [8]float32{ArgRate: 1e-2, ArgTake: 1, ArgEps: 1e-30, ArgLeastScale: 1e-3, ArgThreshold: 1})
	for _, kept := range []dtype.Type{dtype.F32, dtype.BF16} {
		add(" with a mean in "+kept.String(), Attr{}, fixed, spreadAs(kept, dims...))
	}
}

func (l *caseList) adam(n int) {
	w, g, m := f32(spread, n), l.x(n), f32(spread, n)
	v := f32(func(a Array, u func(int) float64) {
		for i := range a.F {
			a.F[i] = u(i)
		}
	}, n)
	zeros := f32(func(Array, func(int) float64) {}, n)
	clip := numbers(0.75, 2)
	later := [8]float32{ArgRate: 1e-2, ArgDecay: 0.1, ArgBeta1: 0.9, ArgBeta2: 0.999, ArgEps: 1e-8, ArgBias1: 0.271, ArgBias2: 0.0547}
	start := [8]float32{ArgRate: 1e-2, ArgBeta1: 0.9, ArgBeta2: 0.95, ArgEps: 1e-8, ArgBias1: 0.1, ArgBias2: 0.2236068}
	name := w.t.Shape.String()
	l.add(name, Adam, Attr{}, w, g, m, v, clip).Args.F = later
	l.add(name+" decoupled", Adam, Attr{Decoupled: true}, w, g, m, v, clip).Args.F = later
	l.add(name+" first iteration", Adam, Attr{Decoupled: true}, w, g, zeros, zeros, clip).Args.F = start
	l.add(name+" copy", Adam, Attr{Decoupled: true, To: dtype.BF16}, w, g, m, v, clip).Args.F = later

	m8, v8, zeros8 := m, v, zeros
	m8.t.DType, v8.t.DType, zeros8.t.DType = dtype.Dyn8, dtype.UDyn8, dtype.Dyn8
	eight := l.add(name+" 8-bit", Adam, Attr{}, w, g, m8, v8, clip)
	eight.Args.F, eight.Big = later, n > 1000
	pure := w
	pure.t.DType = dtype.BF16
	randomly := l.add(name+" pure", Adam, Attr{Decoupled: true}, pure, g, m, v, clip)
	randomly.Args.F, randomly.Args.Key, randomly.Args.Row = later, 77, 1000
	nothing := numbers(0, 2)
	l.add(name+" pure left", Adam, Attr{}, pure, g, m, v, nothing).Args = randomly.Args
	l.add(name+" left", Adam, Attr{To: dtype.BF16}, w, g, m, v, nothing).Args.F = later
	l.add(name+" 8-bit left", Adam, Attr{}, w, g, m8, v8, nothing).Args.F = later
	l.add(name+" 8-bit first iteration", Adam, Attr{Decoupled: true}, w, g, zeros8, operand{v8.t, zeros.f}, clip).Args.F = start
	l.add(name+" 8-bit copy", Adam, Attr{Decoupled: true, To: dtype.BF16}, w, g, m8, v8, clip).Args.F = later
	for _, kept := range [][2]dtype.Type{{dtype.BF16, dtype.BF16}, {dtype.F16, dtype.F16}, {dtype.Dyn8, dtype.F32}, {dtype.Dyn8, dtype.F16}, {dtype.BF16, dtype.UDyn8}, {dtype.F32, dtype.BF16}} {
		m.t.DType, v.t.DType = kept[0], kept[1]
		l.add(fmt.Sprintf("%s %v and %v", name, kept[0], kept[1]), Adam, Attr{Decoupled: true, To: dtype.BF16}, w, g, m, v, clip).Args.F = later
	}
}

func (l *caseList) sgd(n int) {
	w, g, m, clip := f32(spread, n), l.x(n), f32(spread, n), numbers(0.75, 2)
	name := w.t.Shape.String()
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
		l.add(name+" "+c.name, SGD, c.attr, w, g, m, clip).Args.F =
			[8]float32{ArgRate: 0.05, ArgDecay: 0.01, ArgBeta1: c.momentum, ArgBeta2: c.dampening, ArgBias1: c.isFirst}
	}
	for _, kept := range []dtype.Type{dtype.BF16, dtype.F16, dtype.Dyn8} {
		l.add(fmt.Sprintf("%s %v", name, kept), SGD, Attr{}, w, g, spreadAs(kept, n), clip).Args.F = [8]float32{ArgRate: 0.05, ArgDecay: 0.01, ArgBeta1: 0.9}
	}
	pure := w
	pure.t.DType = dtype.BF16
	l.add(name+" pure", SGD, Attr{}, pure, g, m, clip).Args = Args{F: [8]float32{ArgRate: 0.05, ArgBeta1: 0.9}, Key: 78}
	l.add(name+" left", SGD, Attr{}, w, g, m, numbers(0, 2)).Args.F = [8]float32{ArgRate: 0.05, ArgDecay: 0.01, ArgBeta1: 0.9}
	l.add(name+" without m", SGD, Attr{}, w, g, clip).Args.F = [8]float32{ArgRate: 0.05, ArgDecay: 0.01}
}

func (l *caseList) lion(n int) {
	w, g, m, clip := f32(spread, n), l.x(n), f32(spread, n), numbers(0.75, 2)
	args := [8]float32{ArgRate: 1e-2, ArgDecay: 0.1, ArgBeta1: 0.9, ArgBeta2: 0.99}
	name := w.t.Shape.String()
	l.add(name, Lion, Attr{}, w, g, m, clip).Args.F = args
	l.add(name+" first iteration", Lion, Attr{}, w, g, f32(func(Array, func(int) float64) {}, n), clip).Args.F = args
	for _, kept := range []dtype.Type{dtype.BF16, dtype.F16, dtype.Dyn8} {
		l.add(fmt.Sprintf("%s %v", name, kept), Lion, Attr{}, w, g, spreadAs(kept, n), clip).Args.F = args
	}
	pure := w
	pure.t.DType = dtype.BF16
	l.add(name+" pure", Lion, Attr{}, pure, g, m, clip).Args = Args{F: args, Key: 79}
	l.add(name+" left", Lion, Attr{}, w, g, m, numbers(0, 2)).Args.F = args
	l.add(name+" copy", Lion, Attr{To: dtype.BF16}, w, g, m, clip).Args.F = args
}
