package kernel

import "math"

// RMSNorm sets dst = x / √(mean(x²) + eps) · w for one row.
func RMSNorm(dst, x, w []float32, eps float64) {
	active.norm(dst, x[:len(dst)], w[:len(dst)], rmsInverse(x, eps), 0)
}

// RMSNormGrad is the gradient of RMSNorm for one row: it sets dx, and adds to dw if
// that is not nil.
func RMSNormGrad(dx, dw, x, w, dy []float32, eps float64) {
	n := len(dx)
	inv := rmsInverse(x, eps)
	slope := -float64(inv) * float64(inv) * float64(inv) / float64(n) * float64(active.dot3(dy[:n], w[:n], x[:n], 0))
	if dw != nil {
		active.normWeight(dw[:n], x[:n], dy[:n], inv, 0)
	}
	active.normGrad(dx, x[:n], w[:n], dy[:n], inv, float32(slope), 0)
}

func rmsInverse(x []float32, eps float64) float32 {
	return float32(1 / math.Sqrt(Dot(x, x)/float64(len(x))+eps))
}

// LayerNorm sets dst = (x - mean) / √(variance + eps) · w + b for one row; b may be nil.
func LayerNorm(dst, x, w, b []float32, eps float64) {
	mean, inv := moments(x, eps)
	active.norm(dst, x[:len(dst)], w[:len(dst)], inv, -mean*inv)
	if b != nil {
		Add(dst, dst, b)
	}
}

// LayerNormGrad is the gradient of LayerNorm for one row: it sets dx, and adds to dw
// and db where they are not nil.
func LayerNormGrad(dx, dw, db, x, w, dy []float32, eps float64) {
	n := len(dx)
	x, w, dy = x[:n], w[:n], dy[:n]
	mean, inv := moments(x, eps)
	if dw != nil {
		active.normWeight(dw[:n], x, dy, inv, -mean*inv)
	}
	if db != nil {
		Add(db[:n], db, dy)
	}
	slope := -float64(inv) * float64(inv) * float64(inv) / float64(n) * float64(active.dot3(dy, w, x, mean))
	level := -float64(inv)/float64(n)*float64(active.dot(dy, w)) - slope*float64(mean)
	active.normGrad(dx, x, w, dy, inv, float32(slope), float32(level))
}

// moments of a row: its mean and 1/√(variance + eps). The variance is taken around
// the mean, in a second pass.
func moments(x []float32, eps float64) (mean, inv float32) {
	mean = float32(Sum(x) / float64(len(x)))
	variance := float64(active.spread(x, mean)) / float64(len(x))
	return mean, float32(1 / math.Sqrt(variance+eps))
}

func spreadGo(x []float32, mean float32) float32 {
	total := 0.0
	for _, v := range x {
		d := float64(v - mean)
		total += d * d
	}
	return float32(total)
}

func normGo(dst, x, w []float32, scale, shift float32) {
	for i := range dst {
		dst[i] = (x[i]*scale + shift) * w[i]
	}
}

func normGradGo(dx, x, w, dy []float32, a, b, c float32) {
	for i := range dx {
		dx[i] = a*(dy[i]*w[i]) + (b*x[i] + c)
	}
}

func normWeightGo(dw, x, dy []float32, scale, shift float32) {
	for i := range dw {
		dw[i] += dy[i] * (x[i]*scale + shift)
	}
}
