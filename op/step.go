package op

// What a step of an optimizer multiplies by, made from the scalars of an iteration. It is
// made here, in f32 and rounded as written, so that all backends give the same bits: a
// conversion keeps a product apart from the sum it joins.

// AdamStep are the numbers of a step of Adam: g = g + couple·w, m = beta1·m + rest1·g,
// v = beta2·v + rest2·g², w = shrink·w - rate·m/(root·√v + eps).
type AdamStep struct{ Rate, Shrink, Couple, Beta1, Rest1, Beta2, Rest2, Root, Eps float32 }

// AdamStep of an iteration. Decoupled decay shrinks the weight, other joins the gradient.
func (a Args) AdamStep(decoupled bool) AdamStep {
	f := a.Scalars
	s := AdamStep{
		Rate: f[ArgRate] / f[ArgBias1], Shrink: 1, Couple: f[ArgDecay], Root: 1 / f[ArgBias2], Eps: f[ArgEps],
		Beta1: f[ArgBeta1], Rest1: 1 - f[ArgBeta1], Beta2: f[ArgBeta2], Rest2: 1 - f[ArgBeta2],
	}
	if decoupled {
		s.Shrink, s.Couple = 1-float32(f[ArgRate]*f[ArgDecay]), 0
	}
	return s
}

// SGDStep are the numbers of a step of SGD: g = g + decay·w, m = momentum·m + fresh·g,
// w = w - rate·(direct·g + through·m). Where it keeps no m, w = w - rate·g.
type SGDStep struct {
	Rate, Decay, Momentum, Fresh, Direct, Through float32
	Keeps                                         bool
}

// SGDStep of an iteration. On the first, m becomes g.
func (a Args) SGDStep(nesterov bool) SGDStep {
	f := a.Scalars
	s := SGDStep{Rate: f[ArgRate], Decay: f[ArgDecay], Momentum: f[ArgBeta1], Fresh: 1 - f[ArgBeta2], Through: 1, Keeps: f[ArgBeta1] != 0}
	if f[ArgBias1] != 0 {
		s.Momentum, s.Fresh = 0, 1
	}
	if nesterov {
		s.Direct, s.Through = 1, f[ArgBeta1]
	}
	return s
}

// LionStep are the numbers of a step of Lion: w = shrink·w - rate·sign(beta1·m + rest1·g),
// m = beta2·m + rest2·g.
type LionStep struct{ Rate, Shrink, Beta1, Rest1, Beta2, Rest2 float32 }

// LionStep of an iteration.
func (a Args) LionStep() LionStep {
	f := a.Scalars
	return LionStep{
		Rate: f[ArgRate], Shrink: 1 - float32(f[ArgRate]*f[ArgDecay]),
		Beta1: f[ArgBeta1], Rest1: 1 - f[ArgBeta1], Beta2: f[ArgBeta2], Rest2: 1 - f[ArgBeta2],
	}
}
