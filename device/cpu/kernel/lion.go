package kernel

// Lion is one step of Lion.
type Lion struct {
	Rate, Decay, Beta1, Beta2 float32
	// Clip multiplies the gradient.
	Clip float32
}

// Update changes w and m in place:
//
//	w = w·(1 - rate·decay) - rate·sign(β1·m + (1-β1)·g)     m = β2·m + (1-β2)·g
func (o *Lion) Update(w, g, m []float32) {
	active.lion(w, g[:len(w)], m[:len(w)], o.scalars())
}

// lionScalars are the numbers of one step, see lionGo.
type lionScalars struct {
	clip, beta1, rest1, beta2, rest2, rate, shrink float32
}

func (o *Lion) scalars() lionScalars {
	return lionScalars{
		clip: o.Clip, beta1: o.Beta1, rest1: 1 - o.Beta1, beta2: o.Beta2, rest2: 1 - o.Beta2,
		rate: o.Rate, shrink: 1 - float32(o.Rate*o.Decay),
	}
}

func lionGo(w, g, m []float32, s lionScalars) {
	for i := range w {
		d := float32(g[i] * s.clip)
		step := sign(fma(m[i], s.beta1, float32(d*s.rest1)))
		w[i] = fma(w[i], s.shrink, -float32(step*s.rate))
		m[i] = fma(m[i], s.beta2, float32(d*s.rest2))
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
