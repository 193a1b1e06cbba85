package kernel

import (
	"spillway/dtype"
	"spillway/op"
)

// SGD is the Optimizer of stochastic gradient descent. Without momentum its state stays as it
// is, and may be nil.
type SGD struct {
	sgdScalars
	hasMomentum bool
}

// sgdScalars are the numbers of one step, see sgdGo.
type sgdScalars struct {
	clip, rate, decay, momentum, fresh, direct, through float32
	unless                                              uint32 // see flush
}

func (o *SGD) Scalars() []string {
	return []string{"rate", "decay", "momentum", "fresh", "direct", "through", "has_momentum"}
}

func (o *SGD) Set(s op.Scalars, clip float32, flush [2]bool) {
	*o = SGD{sgdScalars{clip, s[0], s[1], s[2], s[3], s[4], s[5], unless(flush[0])}, s[6] != 0}
}

func (o *SGD) Update(w, g []float32, states [2][]float32) {
	if m := states[0]; o.hasMomentum && m != nil {
		active.sgd(w, g[:len(w)], m[:len(w)], o.sgdScalars)
	} else {
		active.sgdBare(w, g[:len(w)], o.sgdScalars)
	}
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
