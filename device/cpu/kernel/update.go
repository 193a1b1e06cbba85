package kernel

import (
	"math"

	"spillway/op"
)

// Steps of optimizers are the same bits on every path, and on cards: products and sums
// are rounded as written, float32(x·y) apart and fma together, roots and quotients to the
// nearest. Only which NaN it is where there is one is left open.

// Adam is one step of Adam.
type Adam struct {
	op.AdamStep
	// Clip multiplies the gradient.
	Clip float32
	// Flush makes numbers of m, or of v, below the normal ones zero, see flush.
	Flush [2]bool
}

// Update changes w, m and v in place.
func (a *Adam) Update(w, g, m, v []float32) {
	n := len(w)
	active.adam(w, g[:n], m[:n], v[:n], a.scalars())
}

// adamScalars are the numbers of one Adam step, see adamGo.
type adamScalars struct {
	clip, couple, beta1, rest1, beta2, rest2, root, eps, rate, shrink float32
	unlessM, unlessV                                                  uint32 // see flush
}

func (a *Adam) scalars() adamScalars {
	return adamScalars{a.Clip, a.Couple, a.Beta1, a.Rest1, a.Beta2, a.Rest2, a.Root, a.Eps, a.Rate, a.Shrink, unless(a.Flush[0]), unless(a.Flush[1])}
}

func adamGo(w, g, m, v []float32, s adamScalars) {
	for i := range w {
		d := fma(w[i], s.couple, float32(g[i]*s.clip))
		m[i] = flush(fma(m[i], s.beta1, float32(d*s.rest1)), s.unlessM)
		v[i] = flush(fma(v[i], s.beta2, float32(float32(d*d)*s.rest2)), s.unlessV)
		root := float32(math.Sqrt(float64(v[i])))
		w[i] = fma(w[i], s.shrink, -(float32(m[i]*s.rate) / fma(root, s.root, s.eps)))
	}
}

// SGD is one step of stochastic gradient descent.
type SGD struct {
	op.SGDStep
	// Clip multiplies the gradient.
	Clip float32
	// Flush makes numbers of m below the normal ones zero, see flush.
	Flush bool
}

// Update changes w and m in place. Without momentum m stays as it is, and may be nil.
func (o *SGD) Update(w, g, m []float32) {
	if o.Keeps {
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
		d := fma(w[i], s.decay, float32(g[i]*s.clip))
		m[i] = flush(fma(d, s.fresh, float32(m[i]*s.momentum)), s.unless)
		w[i] = fma(-s.rate, fma(d, s.direct, float32(m[i]*s.through)), w[i])
	}
}

func sgdBareGo(w, g []float32, s sgdScalars) {
	for i := range w {
		w[i] = fma(-s.rate, fma(w[i], s.decay, float32(g[i]*s.clip)), w[i])
	}
}

// flush is x, or zero of its sign unless x has some of the bits given: those of the exponent
// for what is below the normal numbers, all of them for nothing at all.
//
// Moments without a gradient decay to below the normal numbers, but not to zero: 0.9 times
// 4·2^-149 rounds back to that. A processor takes many times as long for such numbers; so
// where they would be kept they become zero, before anything is made of them.
func flush(x float32, unless uint32) float32 {
	if bits := math.Float32bits(x); bits&unless == 0 {
		return math.Float32frombits(bits & (1 << 31))
	}
	return x
}

// unless are the bits for flush.
func unless(flush bool) uint32 {
	if flush {
		return 0xff << 23
	}
	return math.MaxUint32
}
