package kernel

import (
	"math"

	"spillway/dtype"
)

// Adam is one step of Adam.
type Adam struct {
	AdamStep
	// Clip multiplies the gradient.
	Clip float32
	// Flush turns denormal numbers of m, and of v, into zero, see flush.
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
		d := dtype.FMA(w[i], s.couple, float32(g[i]*s.clip))
		m[i] = flush(dtype.FMA(m[i], s.beta1, float32(d*s.rest1)), s.unlessM)
		v[i] = flush(dtype.FMA(v[i], s.beta2, float32(float32(d*d)*s.rest2)), s.unlessV)
		root := float32(math.Sqrt(float64(v[i])))
		w[i] = dtype.FMA(w[i], s.shrink, -(float32(m[i]*s.rate) / dtype.FMA(root, s.root, s.eps)))
	}
}

// AdamStep are the numbers a step of Adam multiplies by, see package optim.
type AdamStep struct{ Couple, Beta1, Rest1, Beta2, Rest2, Root, Eps, Rate, Shrink float32 }
