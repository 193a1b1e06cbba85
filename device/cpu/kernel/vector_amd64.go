package kernel

//go:noescape
func addAVX512(dst, x, y []float32)

//go:noescape
func mulAVX512(dst, x, y []float32)

//go:noescape
func addMulAVX512(dst, x, y []float32)

//go:noescape
func scaleAVX512(dst, x []float32, s float32)

//go:noescape
func addScaledAVX512(dst, x []float32, s float32)

//go:noescape
func sumAVX512(x []float32) float32

//go:noescape
func dotAVX512(x, y []float32) float32

//go:noescape
func dot3AVX512(x, y, z []float32, shift float32) float32

//go:noescape
func spreadAVX512(x []float32, mean float32) float32

//go:noescape
func maxAVX512(x []float32) float32

//go:noescape
func expSumAVX512(dst, x []float32, shift float32) float32

//go:noescape
func squaresAVX512(x []float32) float64

//go:noescape
func normAVX512(dst, x, w []float32, scale, shift float32)

//go:noescape
func normGradAVX512(dx, x, w, dy []float32, a, b, c float32)

//go:noescape
func normWeightAVX512(dw, x, dy []float32, scale, shift float32)

//go:noescape
func rotateAVX512(lo, hi, x, y, cos, sin []float32)

//go:noescape
func columnMaxAVX512(m []float32, s *float32, step, rows int)

//go:noescape
func columnExpAVX512(sum, m []float32, s *float32, step, rows int)

//go:noescape
func columnGradAVX512(delta []float32, d, p *float32, step, rows int, scale float32)

//go:noescape
func adamAVX512(w, g, m, v []float32, s adamScalars)

//go:noescape
func sgdAVX512(w, g, m []float32, s sgdScalars)

//go:noescape
func sgdBareAVX512(w, g []float32, s sgdScalars)

//go:noescape
func lionAVX512(w, g, m []float32, s lionScalars)

//go:noescape
func addAVX2(dst, x, y []float32)

//go:noescape
func mulAVX2(dst, x, y []float32)

//go:noescape
func addMulAVX2(dst, x, y []float32)

//go:noescape
func scaleAVX2(dst, x []float32, s float32)

//go:noescape
func addScaledAVX2(dst, x []float32, s float32)

//go:noescape
func sumAVX2(x []float32) float32

//go:noescape
func dotAVX2(x, y []float32) float32

//go:noescape
func dot3AVX2(x, y, z []float32, shift float32) float32

//go:noescape
func spreadAVX2(x []float32, mean float32) float32

//go:noescape
func maxAVX2(x []float32) float32

//go:noescape
func expSumAVX2(dst, x []float32, shift float32) float32

//go:noescape
func squaresAVX2(x []float32) float64

//go:noescape
func normAVX2(dst, x, w []float32, scale, shift float32)

//go:noescape
func normGradAVX2(dx, x, w, dy []float32, a, b, c float32)

//go:noescape
func normWeightAVX2(dw, x, dy []float32, scale, shift float32)

//go:noescape
func rotateAVX2(lo, hi, x, y, cos, sin []float32)

//go:noescape
func columnMaxAVX2(m []float32, s *float32, step, rows int)

//go:noescape
func columnExpAVX2(sum, m []float32, s *float32, step, rows int)

//go:noescape
func columnGradAVX2(delta []float32, d, p *float32, step, rows int, scale float32)

//go:noescape
func adamAVX2(w, g, m, v []float32, s adamScalars)

//go:noescape
func sgdAVX2(w, g, m []float32, s sgdScalars)

//go:noescape
func sgdBareAVX2(w, g []float32, s sgdScalars)

//go:noescape
func lionAVX2(w, g, m []float32, s lionScalars)
