package kernel

// The functions of the assembly, here and in the files next to it, are called through routines
// alone. There the compiler lets all arguments escape, so that go:noescape would change nothing.

func addAVX512(dst, x, y []float32)
func mulAVX512(dst, x, y []float32)
func addMulAVX512(dst, x, y []float32)
func scaleAVX512(dst, x []float32, s float32)
func addScaledAVX512(dst, x []float32, s float32)
func sumAVX512(x []float32) float32
func dotAVX512(x, y []float32) float32
func dot3AVX512(x, y, z []float32, shift float32) float32
func spreadAVX512(x []float32, mean float32) float32
func maxAVX512(x []float32) float32
func expSumAVX512(dst, x []float32, shift float32) float32
func squaresAVX512(x []float32) float64
func normAVX512(dst, x, w []float32, scale, shift float32)
func normGradAVX512(dx, x, w, dy []float32, a, b, c float32)
func normWeightAVX512(dw, x, dy []float32, scale, shift float32)
func rotateAVX512(y, x, cos, sin []float32, heads, width int)
func anglesAVX512(cos, sin, freq []float32, position float32, cosTimes, sinTimes float64)
func columnMaxAVX512(m []float32, s *float32, step, rows int)
func columnExpAVX512(sum, m []float32, s *float32, step, rows int)
func columnGradAVX512(delta []float32, d, p *float32, step, rows int, scale float32)
func adamAVX512(w, g, m, v []float32, s Adam)
func touchAVX512(w, g, m, v []float32)
func sgdAVX512(w, g, m []float32, s sgdScalars)
func sgdBareAVX512(w, g []float32, s sgdScalars)
func lionAVX512(w, g, m []float32, s Lion)
func rmspropAVX512(w, g, v []float32, s RMSprop)
func addAVX2(dst, x, y []float32)
func mulAVX2(dst, x, y []float32)
func addMulAVX2(dst, x, y []float32)
func scaleAVX2(dst, x []float32, s float32)
func addScaledAVX2(dst, x []float32, s float32)
func sumAVX2(x []float32) float32
func dotAVX2(x, y []float32) float32
func dot3AVX2(x, y, z []float32, shift float32) float32
func spreadAVX2(x []float32, mean float32) float32
func maxAVX2(x []float32) float32
func expSumAVX2(dst, x []float32, shift float32) float32
func squaresAVX2(x []float32) float64
func normAVX2(dst, x, w []float32, scale, shift float32)
func normGradAVX2(dx, x, w, dy []float32, a, b, c float32)
func normWeightAVX2(dw, x, dy []float32, scale, shift float32)
func rotateAVX2(y, x, cos, sin []float32, heads, width int)
func anglesAVX2(cos, sin, freq []float32, position float32, cosTimes, sinTimes float64)
func columnMaxAVX2(m []float32, s *float32, step, rows int)
func columnExpAVX2(sum, m []float32, s *float32, step, rows int)
func columnGradAVX2(delta []float32, d, p *float32, step, rows int, scale float32)
func adamAVX2(w, g, m, v []float32, s Adam)
func touchAVX2(w, g, m, v []float32)
func sgdAVX2(w, g, m []float32, s sgdScalars)
func sgdBareAVX2(w, g []float32, s sgdScalars)
func lionAVX2(w, g, m []float32, s Lion)
func rmspropAVX2(w, g, v []float32, s RMSprop)
