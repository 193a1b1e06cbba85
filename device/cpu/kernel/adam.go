package kernel

import (
	"math"

	"spillway/dtype"
	"spillway/op"
)

// Adam is the Optimizer of Adam and AdamW, see adamGo.
type Adam struct {
	clip, couple, beta1, rest1, beta2, rest2, root, eps, rate, shrink float32
	unlessM, unlessV                                                  uint32 // see flush
}

func (a *Adam) Scalars() []string {
	return []string{"couple", "beta1", "rest1", "beta2", "rest2", "root", "eps", "rate", "shrink"}
}

func (a *Adam) Set(s op.Scalars, clip float32, flush [2]bool) {
	*a = Adam{clip, s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7], s[8], unless(flush[0]), unless(flush[1])}
}

func (a *Adam) Update(w, g []float32, states [2][]float32) {
	n := len(w)
	active.adam(w, g[:n], states[0][:n], states[1][:n], *a)
}

func adamGo(w, g, m, v []float32, s Adam) {
	for i := range w {
		d := dtype.FMA(w[i], s.couple, float32(g[i]*s.clip))
		m[i] = flush(dtype.FMA(m[i], s.beta1, float32(d*s.rest1)), s.unlessM)
		v[i] = flush(dtype.FMA(v[i], s.beta2, float32(float32(d*d)*s.rest2)), s.unlessV)
		root := float32(math.Sqrt(float64(v[i])))
		w[i] = dtype.FMA(w[i], s.shrink, -(float32(m[i]*s.rate) / dtype.FMA(root, s.root, s.eps)))
	}
}
