package kernel

import "spillway/dtype"

// Lion is one step of Lion.
type Lion struct {
	LionStep
	// Clip multiplies the gradient.
	Clip float32
	// Flush turns denormal numbers of m into zero, see flush.
	Flush bool
}

// Update changes w and m in place.
func (o *Lion) Update(w, g, m []float32) {
	active.lion(w, g[:len(w)], m[:len(w)], o.scalars())
}

// lionScalars are the numbers of one step, see lionGo.
type lionScalars struct {
	clip, beta1, rest1, beta2, rest2, rate, shrink float32
	unless                                         uint32 // see flush
}

func (o *Lion) scalars() lionScalars {
	return lionScalars{o.Clip, o.Beta1, o.Rest1, o.Beta2, o.Rest2, o.Rate, o.Shrink, unless(o.Flush)}
}

func lionGo(w, g, m []float32, s lionScalars) {
	for i := range w {
		d := float32(g[i] * s.clip)
		step := sign(dtype.FMA(m[i], s.beta1, float32(d*s.rest1)))
		w[i] = dtype.FMA(w[i], s.shrink, -float32(step*s.rate))
		m[i] = flush(dtype.FMA(m[i], s.beta2, float32(d*s.rest2)), s.unless)
	}
}

func sign(f float32) float32 {
	switch {
	case f > 0:
		return 1
	case f < 0:
		return -1
	}
	return f // zero, or not a number
}

// LionStep are the numbers a step of Lion multiplies by, see package optim.
type LionStep struct{ Beta1, Rest1, Beta2, Rest2, Rate, Shrink float32 }
