package kernel

import "math"

// Steps of optimizers are the same bits on every path, and on cards: products and sums
// are rounded as written, float32(x·y) apart and fma together, roots and quotients to the
// nearest. Only which NaN it is where there is one is left open.

// Adam is one step of Adam. With Decoupled the decay shrinks the weights (AdamW),
// else it joins the gradient. Bias1 is 1 - Beta1^t, Bias2 is √(1 - Beta2^t), t being
// the iteration counted from one.
type Adam struct {
	Rate, Decay, Beta1, Beta2, Eps, Bias1, Bias2 float32
	Decoupled                                    bool
	// Clip multiplies the gradient.
	Clip float32
}

// Update changes w, m and v in place:
//
//	m = β1·m + (1-β1)·g      v = β2·v + (1-β2)·g²
//	w = w - rate/bias1 · m / (√v/bias2 + eps)
func (a *Adam) Update(w, g, m, v []float32) {
	n := len(w)
	active.adam(w, g[:n], m[:n], v[:n], a.scalars())
}

// adamScalars are the numbers of one Adam step, see adamGo.
type adamScalars struct {
	clip, couple, beta1, rest1, beta2, rest2, root, eps, rate, shrink float32
}

func (a *Adam) scalars() adamScalars {
	s := adamScalars{
		clip: a.Clip, beta1: a.Beta1, rest1: 1 - a.Beta1, beta2: a.Beta2, rest2: 1 - a.Beta2,
		root: 1 / a.Bias2, eps: a.Eps, rate: a.Rate / a.Bias1, shrink: 1,
	}
	if a.Decoupled {
		s.shrink = 1 - float32(a.Rate*a.Decay)
	} else {
		s.couple = a.Decay
	}
	return s
}

func adamGo(w, g, m, v []float32, s adamScalars) {
	for i := range w {
		d := fma(w[i], s.couple, float32(g[i]*s.clip))
		m[i] = fma(m[i], s.beta1, float32(d*s.rest1))
		v[i] = fma(v[i], s.beta2, float32(float32(d*d)*s.rest2))
		root := float32(math.Sqrt(float64(v[i])))
		w[i] = fma(w[i], s.shrink, -(float32(m[i]*s.rate) / fma(root, s.root, s.eps)))
	}
}

// SGD is one step of stochastic gradient descent with momentum. First says that m
// holds nothing yet and becomes the gradient itself.
type SGD struct {
	Rate, Decay, Momentum, Dampening float32
	Nesterov, First                  bool
	// Clip multiplies the gradient.
	Clip float32
}

// Update changes w and m in place:
//
//	g = g + decay·w     m = momentum·m + (1-dampening)·g     w = w - rate·m
//
// or w - rate·(g + momentum·m) with Nesterov. Without momentum m stays as it is.
func (o *SGD) Update(w, g, m []float32) {
	if o.Momentum == 0 {
		o.UpdateBare(w, g)
		return
	}
	active.sgd(w, g[:len(w)], m[:len(w)], o.scalars())
}

// UpdateBare is the step without momentum: w = w - rate·(g + decay·w).
func (o *SGD) UpdateBare(w, g []float32) {
	active.sgdBare(w, g[:len(w)], sgdScalars{clip: o.Clip, decay: o.Decay, rate: o.Rate})
}

// sgdScalars are the numbers of one step, see sgdGo.
type sgdScalars struct {
	clip, decay, momentum, fresh, direct, through, rate float32
}

func (o *SGD) scalars() sgdScalars {
	s := sgdScalars{clip: o.Clip, decay: o.Decay, momentum: o.Momentum, fresh: 1 - o.Dampening, through: 1, rate: o.Rate}
	if o.First {
		s.momentum, s.fresh = 0, 1
	}
	if o.Nesterov {
		s.direct, s.through = 1, o.Momentum
	}
	return s
}

func sgdGo(w, g, m []float32, s sgdScalars) {
	for i := range w {
		d := fma(w[i], s.decay, float32(g[i]*s.clip))
		m[i] = fma(d, s.fresh, float32(m[i]*s.momentum))
		w[i] = fma(-s.rate, fma(d, s.direct, float32(m[i]*s.through)), w[i])
	}
}

func sgdBareGo(w, g []float32, s sgdScalars) {
	for i := range w {
		w[i] = fma(-s.rate, fma(w[i], s.decay, float32(g[i]*s.clip)), w[i])
	}
}
