package kernel

import "spillway/dtype"

// SGD is one step of stochastic gradient descent.
type SGD struct {
	SGDStep
	// Clip multiplies the gradient.
	Clip float32
	// Flush turns denormal numbers of m into zero, see flush.
	Flush bool
}

// Update changes w and m in place. Without momentum m stays as it is, and may be nil.
func (o *SGD) Update(w, g, m []float32) {
	if o.HasMomentum {
		active.sgd(w, g[:len(w)], m[:len(w)], o.scalars())
	} else {
		active.sgdBare(w, g[:len(w)], o.scalars())
	}
}

// sgdScalars are the numbers of one step, see sgdGo.
type sgdScalars struct {
	clip, decay, momentum, fresh, direct, through, rate float32
	unless                                              uint32 // see flush
}

func (o *SGD) scalars() sgdScalars {
	return sgdScalars{o.Clip, o.Decay, o.Momentum, o.Fresh, o.Direct, o.Through, o.Rate, unless(o.Flush)}
}

func sgdGo(w, g, m []float32, s sgdScalars) {
	for i := range w {
		d := dtype.FMA(w[i], s.decay, float32(g[i]*s.clip))
		m[i] = flush(dtype.FMA(d, s.fresh, float32(m[i]*s.momentum)), s.unless)
		w[i] = dtype.FMA(-s.rate, dtype.FMA(d, s.direct, float32(m[i]*s.through)), w[i])
	}
}

func sgdBareGo(w, g []float32, s sgdScalars) {
	for i := range w {
		w[i] = dtype.FMA(-s.rate, dtype.FMA(w[i], s.decay, float32(g[i]*s.clip)), w[i])
	}
}

// SGDStep are the numbers a step of SGD multiplies by, see package optim.
type SGDStep struct {
	Rate, Decay, Momentum, Fresh, Direct, Through float32
	HasMomentum                                   bool
}
