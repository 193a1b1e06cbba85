package kernel

import (
	"math"
	"testing"
)

// The plain norms in double precision, with a loss Σ y·dy whose derivatives the
// gradients are.
func plainRMSNorm(x, w []float64, eps float64) []float64 {
	total := 0.0
	for _, v := range x {
		total += v * v
	}
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = v / math.Sqrt(total/float64(len(x))+eps) * w[i]
	}
	return y
}

func plainLayerNorm(x, w, b []float64, eps float64) []float64 {
	mean, variance := 0.0, 0.0
	for _, v := range x {
		mean += v / float64(len(x))
	}
	for _, v := range x {
		variance += (v - mean) * (v - mean) / float64(len(x))
	}
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = (v-mean)/math.Sqrt(variance+eps)*w[i] + b[i]
	}
	return y
}

func doubles(x []float32) []float64 {
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = float64(v)
	}
	return y
}

// slopes are the derivatives of Σ f(x)·dy by central differences.
func slopes(x, dy []float64, f func(x []float64) []float64) []float64 {
	const h = 1e-6
	loss := func() (total float64) {
		for i, v := range f(x) {
			total += v * dy[i]
		}
		return total
	}
	d := make([]float64, len(x))
	for i, v := range x {
		x[i] = v + h
		up := loss()
		x[i] = v - h
		d[i], x[i] = (up-loss())/(2*h), v
	}
	return d
}

func TestRMSNorm(t *testing.T) {
	const eps = 1e-5
	eachPath(t, func(t *testing.T) {
		rng := newRand()
		for _, n := range []int{1, 2, 7, 16, 33, 64, 129, 200} {
			x, w, dy, dw0 := random(rng, n), random(rng, n), random(rng, n), random(rng, n)
			y, dx, dw := make([]float32, n), make([]float32, n), append([]float32(nil), dw0...)
			RMSNorm(y, x, w, eps)
			RMSNormGrad(dx, dw, x, w, dy, eps)
			wide, weight, grad := doubles(x), doubles(w), doubles(dy)
			wantX := slopes(wide, grad, func(x []float64) []float64 { return plainRMSNorm(x, weight, eps) })
			wantW := slopes(weight, grad, func(w []float64) []float64 { return plainRMSNorm(wide, w, eps) })
			for i, want := range plainRMSNorm(wide, weight, eps) {
				near(t, "y", i, y[i], want)
				near(t, "dx", i, dx[i], wantX[i])
				near(t, "dw", i, dw[i], float64(dw0[i])+wantW[i])
			}
		}
	})
}

func TestLayerNorm(t *testing.T) {
	const eps = 1e-5
	eachPath(t, func(t *testing.T) {
		rng := newRand()
		for _, n := range []int{7, 16, 33, 64, 129, 200} {
			x, w, b, dy := random(rng, n), random(rng, n), random(rng, n), random(rng, n)
			for i := range x {
				x[i] += 3 // a mean that must be taken out
			}
			y, dx, dw, db := make([]float32, n), make([]float32, n), make([]float32, n), make([]float32, n)
			LayerNorm(y, x, w, b, eps)
			LayerNormGrad(dx, dw, db, x, w, dy, eps)
			wide, weight, bias, grad := doubles(x), doubles(w), doubles(b), doubles(dy)
			wantX := slopes(wide, grad, func(x []float64) []float64 { return plainLayerNorm(x, weight, bias, eps) })
			wantW := slopes(weight, grad, func(w []float64) []float64 { return plainLayerNorm(wide, w, bias, eps) })
			for i, want := range plainLayerNorm(wide, weight, bias, eps) {
				near(t, "y", i, y[i], want)
				near(t, "dx", i, dx[i], wantX[i])
				near(t, "dw", i, dw[i], wantW[i])
				near(t, "db", i, db[i], grad[i])
			}
		}
	})
}
