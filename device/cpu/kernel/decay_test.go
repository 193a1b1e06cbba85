package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"spillway/optim"
)

const leastNormal = 0x1p-126

func TestFlush(t *testing.T) {
	below := math.Nextafter32(leastNormal, 0)
	for _, c := range [][2]float32{
		{0, 0}, {0x1p-149, 0}, {0x1p-130, 0}, {below, 0}, {leastNormal, leastNormal}, {1, 1}, {math.MaxFloat32, math.MaxFloat32}, {infinity, infinity},
	} {
		sameBits(t, fmt.Sprintf("flush of ±%x", c[0]), []float32{flush(c[0], unless(true)), flush(-c[0], unless(true))}, []float32{c[1], -c[1]})
		sameBits(t, fmt.Sprintf("±%x as it is", c[0]), []float32{flush(c[0], unless(false)), flush(-c[0], unless(false))}, []float32{c[0], -c[0]})
	}
	if f := flush(float32(math.NaN()), unless(true)); f == f {
		t.Errorf("flush of what is not a number is %v", f)
	}
	if f := flush(negativeZero, unless(true)); math.Float32bits(f) != 1<<31 {
		t.Errorf("flush of -0 is %v", f)
	}
}

// decaying are n numbers of both signs from 2^-149 to 2^-120, with zeros between them.
func decaying(rng *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(math.Ldexp(1+rng.Float64(), -120-rng.IntN(30))) * float32(rng.IntN(3)-1)
	}
	return x
}

// sparse are n numbers of which most are zeros of both signs, the others as small as
// that they or their squares are near the least normal number.
func sparse(rng *rand.Rand, n int) []float32 {
	x := decaying(rng, n)
	for i := range x {
		switch rng.IntN(8) {
		case 0:
		case 1:
			x[i] *= 0x1p60
		default:
			x[i] *= 0
		}
	}
	return x
}

// textbook is a rule in double precision: weight and moments after a step.
type textbook func(step, w, g, m, v float64) (float64, float64, float64)

// A gradient, and none for two thousand steps: moments are zero then, and weights where
// the textbook has them. Its own moments are never zero; but a weight of Lion moves as long
// as the moment is not, so there it has to say when that is.
func TestDecayedMomentsBecomeZero(t *testing.T) {
	const rate, eps, steps, n = 0x1p-7, 1e-8, 2000, 17
	const beta1, beta2 = float64(float32(0.9)), float64(float32(0.95))
	rules := map[string]struct {
		step func(step float64) ruleStep
		book textbook
	}{
		"adam": {func(step float64) ruleStep {
			return stepOf(new(Adam), optim.AdamStep{Rate: rate, Beta1: float32(beta1), Beta2: float32(beta2), Eps: eps, Decoupled: true,
				Bias1: float32(1 - math.Pow(beta1, step)), Bias2: float32(math.Sqrt(1 - math.Pow(beta2, step)))}.Scalars(), true, true)
		}, func(step, w, g, m, v float64) (float64, float64, float64) {
			m, v = beta1*m+(1-beta1)*g, beta2*v+(1-beta2)*g*g
			return w - rate*m/(1-math.Pow(beta1, step))/(math.Sqrt(v/(1-math.Pow(beta2, step)))+eps), m, v
		}},
		"sgd": {func(float64) ruleStep {
			return stepOf(new(SGD), optim.SGDStep{Rate: rate, Momentum: float32(beta1)}.Scalars(), true)
		}, func(_, w, g, m, v float64) (float64, float64, float64) {
			m = beta1*m + g
			return w - rate*m, m, 0
		}},
		"lion": {func(float64) ruleStep {
			return stepOf(new(Lion), optim.LionStep{Rate: rate, Beta1: float32(beta1), Beta2: float32(beta2)}.Scalars(), true)
		}, func(_, w, g, m, v float64) (float64, float64, float64) {
			if by := beta1*m + (1-beta1)*g; by != 0 {
				w -= math.Copysign(rate, by)
			}
			if m = beta2*m + (1-beta2)*g; math.Abs(m) < leastNormal {
				m = 0
			}
			return w, m, 0
		}},
	}
	eachPath(t, func(t *testing.T) {
		for name, rule := range rules {
			rng := newRand()
			w, g, m, v := random(rng, n), random(rng, n), make([]float32, n), make([]float32, n)
			Scale(w, w, 0.1)
			pw, pm, pv := doubles(w), doubles(m), doubles(v)
			for step := 1.0; step <= steps; step++ {
				for i := range n {
					pw[i], pm[i], pv[i] = rule.book(step, pw[i], 0.7*float64(g[i]), pm[i], pv[i])
				}
				rule.step(step)(w, g, m, v)
				clear(g)
			}
			for i := range n {
				near(t, name, i, w[i], pw[i])
				if m[i] != 0 || v[i] != 0 {
					t.Errorf("%s: moments %d are %v and %v after %v steps without a gradient", name, i, m[i], v[i], steps-1)
				}
			}
		}
	})
}

// BenchmarkDecayed compares updates of weights that got no gradient for so long that
// their moments are where decay alone leaves them, to usual ones: the best time of one
// over the best time of the other, taken in turns.
func BenchmarkDecayed(b *testing.B) {
	for _, c := range []struct {
		name string
		step ruleStep
	}{
		{"adamw", stepOf(new(Adam), optim.AdamStep{Rate: 1e-3, Decay: 0.1, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, Bias1: 1, Bias2: 1, Decoupled: true}.Scalars(), true, true)},
		{"sgd", stepOf(new(SGD), optim.SGDStep{Rate: 1e-3, Momentum: 0.9}.Scalars(), true)},
		{"lion", stepOf(new(Lion), optim.LionStep{Rate: 1e-4, Decay: 0.1, Beta1: 0.9, Beta2: 0.99}.Scalars(), true)},
	} {
		for _, n := range []int{8 << 10, 8 << 20} { // 128 KiB and 128 MiB with both moments
			b.Run(fmt.Sprintf("%s/%d", c.name, n), func(b *testing.B) { benchDecayed(b, n, c.step) })
		}
	}
}

func benchDecayed(b *testing.B, n int, step ruleStep) {
	rng := newRand()
	w, g, v := random(rng, n), random(rng, n), random(rng, n)
	for i := range v {
		v[i] *= v[i]
	}
	usual := [4][]float32{w, g, random(rng, n), v}
	decayed := [4][]float32{random(rng, n), random(rng, n), random(rng, n), random(rng, n)}
	for i := range n { // 0.9 times the one, and 0.999 times the other, are themselves
		decayed[1][i], decayed[2][i], decayed[3][i] = 0, 0x4p-149, 0x180p-149
	}
	best := [2]time.Duration{1 << 62, 1 << 62}
	for b.Loop() {
		for i, x := range [2][4][]float32{usual, decayed} {
			start := time.Now()
			step(x[0], x[1], x[2], x[3])
			best[i] = min(best[i], time.Since(start))
		}
	}
	b.ReportMetric(best[1].Seconds()/best[0].Seconds(), "of-usual")
	b.ReportMetric(float64(best[0].Nanoseconds())/float64(n), "usual-ns")
	b.ReportMetric(float64(best[1].Nanoseconds())/float64(n), "decayed-ns")
}
