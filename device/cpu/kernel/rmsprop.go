package kernel

import (
	"math"

	"spillway/dtype"
	"spillway/op"
)

// RMSprop is the Optimizer of RMSprop and Adagrad, see rmspropGo.
type RMSprop struct {
	clip, couple, alpha, rest, eps, rate float32
	unless                               uint32 // see flush
}

func (o *RMSprop) Scalars() []string { return []string{"couple", "alpha", "rest", "eps", "rate"} }

func (o *RMSprop) Set(s op.Scalars, clip float32, flush [2]bool) {
	*o = RMSprop{clip, s[0], s[1], s[2], s[3], s[4], unless(flush[0])}
}

func (o *RMSprop) Update(w, g []float32, states [2][]float32) {
	active.rmsprop(w, g[:len(w)], states[0][:len(w)], *o)
}

func rmspropGo(w, g, v []float32, s RMSprop) {
	for i := range w {
		d := dtype.FMA(w[i], s.couple, float32(g[i]*s.clip))
		v[i] = flush(dtype.FMA(v[i], s.alpha, float32(float32(d*d)*s.rest)), s.unless)
		w[i] -= float32(d*s.rate) / (float32(math.Sqrt(float64(v[i]))) + s.eps)
	}
}
