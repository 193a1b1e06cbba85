package quant

import (
	"math"
	"math/rand/v2"
	"testing"
)

// Searches for scales find what the plain ones find, bit for bit, by every path: for numbers of any spread, with halves, zeros and
// numbers that are all alike.
func TestFitsArePlain(t *testing.T) {
	defer func(p path) { active = p }(active)
	for _, active = range available() {
		t.Run(active.name, fitsArePlain)
	}
}

func fitsArePlain(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	src := make([]float32, mostFitted)
	for n := range 4000 {
		for i := range src {
			switch x := r.NormFloat64(); n % 5 {
			case 0:
				src[i] = float32(x)
			case 1:
				src[i] = float32(x * math.Exp(6*r.NormFloat64()))
			case 2:
				src[i] = float32(math.Round(2*x)) / 4
			case 3:
				src[i] = float32(n%7) - 3
			default:
				src[i] = float32(math.Abs(x)) * 1e-38
			}
		}
		for _, size := range []int{16, 32} {
			for _, most := range []int{3, 15, 31} {
				s, m := fitAffine(src[:size], most)
				if wantS, wantM := plainFitAffine(src[:size], most); math.Float32bits(s) != math.Float32bits(wantS) || math.Float32bits(m) != math.Float32bits(wantM) {
					t.Fatalf("%v to %d: scale %v, least %v, want %v, %v", src[:size], most, s, m, wantS, wantM)
				}
				if got, want := fitSymmetric(src[:size], most+1), plainFitSymmetric(src[:size], most+1); math.Float32bits(got) != math.Float32bits(want) {
					t.Fatalf("%v to %d: scale %v, want %v", src[:size], most, got, want)
				}
			}
		}
	}
}

// Rounding is that of math.Round: near halves, for large numbers, and for NaN.
func TestRoundAway(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for range 200000 {
		x := math.Float32frombits(r.Uint32())
		if r.IntN(2) == 0 {
			x = float32(r.IntN(1<<20)-1<<19)/2 + float32(r.IntN(3)-1)*0x1p-6
		}
		if got, want := roundAway(x), float32(math.Round(float64(x))); math.Float32bits(got) != math.Float32bits(want) && got == got {
			t.Fatalf("%v becomes %v, want %v", x, got, want)
		}
	}
}

// BenchmarkFit is the time of the search for a block of 32 numbers.
func BenchmarkFit(b *testing.B) {
	r := rand.New(rand.NewPCG(5, 6))
	src := make([]float32, mostFitted)
	for i := range src {
		src[i] = float32(r.NormFloat64())
	}
	for name, fit := range map[string]func(){
		"affine": func() { fitAffine(src, 15) }, "affine, plain": func() { plainFitAffine(src, 15) },
		"symmetric": func() { fitSymmetric(src[:16], 32) }, "symmetric, plain": func() { plainFitSymmetric(src[:16], 32) },
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				fit()
			}
		})
	}
}

// plainFitAffine finds scale and least, both at least 0, for numbers that become scale·q - least
// with q from 0 to most. Larger numbers weigh more.
func plainFitAffine(src []float32, most int) (scale, least float32) {
	lo, hi := extremes(src)
	lo = min(lo, 0)
	if hi <= lo {
		return 0, -lo
	}
	var mean float64
	for _, x := range src {
		mean += float64(x) * float64(x) / float64(len(src))
	}
	mean = math.Sqrt(mean)
	best := math.Inf(1)
	for step := -8; step <= 12; step++ {
		inv := (float32(most) + 0.1*float32(step)) / (hi - lo)
		var w, wq, wqq, wx, wqx float64
		for _, x := range src {
			q := float64(clampCode(roundAway((x-lo)*inv), most))
			weight := mean + math.Abs(float64(x))
			w, wq, wqq, wx, wqx = w+weight, wq+weight*q, wqq+weight*q*q, wx+weight*float64(x), wqx+weight*q*float64(x)
		}
		det := w*wqq - wq*wq
		if det <= 0 {
			continue
		}
		s, m := (w*wqx-wx*wq)/det, (wqq*wx-wq*wqx)/det
		if m > 0 { // a minimum cannot be above zero
			m, s = 0, wqx/wqq
		}
		if s <= 0 {
			continue
		}
		var miss float64
		for _, x := range src {
			q := float64(clampCode(roundAway(float32((float64(x)-m)/s)), most))
			e := s*q + m - float64(x)
			miss += (mean + math.Abs(float64(x))) * e * e
		}
		if miss < best {
			best, scale, least = miss, float32(s), float32(-m)
		}
	}
	if math.IsInf(best, 1) {
		return (hi - lo) / float32(most), -lo
	}
	return scale, least
}

// plainFitSymmetric finds the scale of numbers that become scale·q with q from -most to most-1.
func plainFitSymmetric(src []float32, most int) (scale float32) {
	top := furthest(src)
	if top == 0 {
		return 0
	}
	best := math.Inf(-1)
	for step := -9; step <= 9; step++ {
		inv := -(float32(most) + 0.1*float32(step)) / top
		var xq, qq float64
		for _, x := range src {
			q := float64(clampCode(roundAway(x*inv)+float32(most), 2*most-1) - most)
			weight := float64(x) * float64(x)
			xq, qq = xq+weight*q*float64(x), qq+weight*q*q
		}
		if qq > 0 && xq*xq/qq > best { // what the fit takes off the sum of squares
			best, scale = xq*xq/qq, float32(xq/qq)
		}
	}
	return scale
}
