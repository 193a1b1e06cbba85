package kernel

import (
	"spillway/dtype"
	"spillway/op"
)

// Lion is the Optimizer of Lion, see lionGo.
type Lion struct {
	clip, beta1, rest1, beta2, rest2, rate, shrink float32
	unless                                         uint32 // see flush
}

func (o *Lion) Scalars() []string {
	return []string{"beta1", "rest1", "beta2", "rest2", "rate", "shrink"}
}

func (o *Lion) Set(s op.Scalars, clip float32, flush [2]bool) {
	*o = Lion{clip, s[0], s[1], s[2], s[3], s[4], s[5], unless(flush[0])}
}

func (o *Lion) Update(w, g []float32, states [2][]float32) {
	active.lion(w, g[:len(w)], states[0][:len(w)], *o)
}

func lionGo(w, g, m []float32, s Lion) {
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
