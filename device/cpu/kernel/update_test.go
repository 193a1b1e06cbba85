package kernel

import (
	"math"
	"testing"
)

// Five steps of Adam and AdamW against the textbook in double precision.
func TestAdam(t *testing.T) {
	eachPath(t, func(t *testing.T) {
		for _, n := range []int{1, 15, 16, 50} {
			for _, decoupled := range []bool{false, true} {
				rng := newRand()
				w, m, v := random(rng, n), make([]float32, n), make([]float32, n)
				pw, pm, pv := doubles(w), doubles(m), doubles(v)
				for step := 1; step <= 5; step++ {
					g := random(rng, n)
					b1, b2 := math.Pow(0.9, float64(step)), math.Pow(0.99, float64(step))
					a := Adam{Rate: 0.01, Decay: 0.1, Beta1: 0.9, Beta2: 0.99, Eps: 1e-6, Bias1: float32(1 - b1), Bias2: float32(math.Sqrt(1 - b2)), Decoupled: decoupled, Clip: 0.5}
					a.Update(w, g, m, v)
					for i := range pw {
						d := 0.5 * float64(g[i])
						if decoupled {
							pw[i] -= 0.01 * 0.1 * pw[i]
						} else {
							d += 0.1 * pw[i]
						}
						pm[i] = 0.9*pm[i] + 0.1*d
						pv[i] = 0.99*pv[i] + 0.01*d*d
						pw[i] -= 0.01 * pm[i] / (1 - b1) / (math.Sqrt(pv[i]/(1-b2)) + 1e-6)
					}
				}
				for i := range pw {
					near(t, "w", i, w[i], pw[i])
					near(t, "m", i, m[i], pm[i])
					near(t, "v", i, v[i], pv[i])
				}
			}
		}
	})
}

func TestSGD(t *testing.T) {
	eachPath(t, func(t *testing.T) {
		for _, n := range []int{1, 15, 16, 50} {
			for _, nesterov := range []bool{false, true} {
				rng := newRand()
				w, m := random(rng, n), make([]float32, n)
				pw, pm := doubles(w), doubles(m)
				for step := range 4 {
					g := random(rng, n)
					o := SGD{Rate: 0.1, Decay: 0.01, Momentum: 0.9, Dampening: 0.2, Nesterov: nesterov, First: step == 0, Clip: 0.5}
					o.Update(w, g, m)
					for i := range pw {
						d := 0.5*float64(g[i]) + 0.01*pw[i]
						pm[i] = 0.9*pm[i] + 0.8*d
						if step == 0 {
							pm[i] = d
						}
						if nesterov {
							pw[i] -= 0.1 * (d + 0.9*pm[i])
						} else {
							pw[i] -= 0.1 * pm[i]
						}
					}
				}
				for i := range pw {
					near(t, "w", i, w[i], pw[i])
					near(t, "m", i, m[i], pm[i])
				}
			}
		}
	})
}

func BenchmarkAdam(b *testing.B) {
	const n = 8 << 20
	w, g, m, v := make([]float32, n), make([]float32, n), make([]float32, n), make([]float32, n)
	a := Adam{Rate: 0.01, Decay: 0.1, Beta1: 0.9, Beta2: 0.99, Eps: 1e-6, Bias1: 1, Bias2: 1, Decoupled: true, Clip: 1}
	b.SetBytes(28 * n)
	for b.Loop() {
		a.Update(w, g, m, v)
	}
}

func TestLion(t *testing.T) {
	rng := newRand()
	const n = 50
	w, m := random(rng, n), random(rng, n)
	pw, pm := doubles(w), doubles(m)
	m[3], pm[3] = 0, 0
	for range 4 {
		g := random(rng, n)
		g[3] = 0 // neither a gradient nor a mean: no step
		o := Lion{Rate: 0.01, Decay: 0.1, Beta1: 0.9, Beta2: 0.99, Clip: 0.5}
		o.Update(w, g, m)
		for i := range pw {
			d := 0.5 * float64(g[i])
			pw[i] *= 1 - 0.01*0.1
			if step := 0.9*pm[i] + 0.1*d; step != 0 {
				pw[i] -= math.Copysign(0.01, step)
			}
			pm[i] = 0.99*pm[i] + 0.01*d
		}
	}
	for i := range pw {
		near(t, "w", i, w[i], pw[i])
		near(t, "m", i, m[i], pm[i])
	}
}
