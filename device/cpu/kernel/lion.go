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
	shrink, rest1, rest2 := 1-o.Rate*o.Decay, 1-o.Beta1, 1-o.Beta2
	g, m = g[:len(w)], m[:len(w)]
	for i := range w {
		d := g[i] * o.Clip
		w[i] = w[i]*shrink - o.Rate*sign(o.Beta1*m[i]+rest1*d)
		m[i] = o.Beta2*m[i] + rest2*d
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
