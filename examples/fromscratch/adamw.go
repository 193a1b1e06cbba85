package main

import "math"

// The options of AdamW in the recorded run.
const (
	rate  = 1e-3
	beta1 = 0.9
	beta2 = 0.999
	tiny  = 1e-8
	decay = 0.01 // weight decay, on every param
)

// adamw updates the weights w with the gradient g. m and v are the running means of the
// gradient and of its square. Both start at zero, which the division by 1-beta^t
// corrects. t counts updates from 1.
func adamw(w, g, m, v []float32, t int) {
	bias1 := 1 - math.Pow(beta1, float64(t))
	bias2 := 1 - math.Pow(beta2, float64(t))
	for i := range w {
		gi := float64(g[i])
		mi := beta1*float64(m[i]) + (1-beta1)*gi
		vi := beta2*float64(v[i]) + (1-beta2)*gi*gi
		m[i], v[i] = float32(mi), float32(vi)
		change := mi / bias1 / (math.Sqrt(vi/bias2) + tiny)
		w[i] = float32(float64(w[i])*(1-rate*decay) - rate*change)
	}
}
