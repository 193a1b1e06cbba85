package kernel

func plane1AVX2(taps int, offsets *int, each int, x *float32, xStep int, w *float32, c *float32, cStep int, add *float32)
func plane2AVX2(taps int, offsets *int, each int, x *float32, xStep int, w *float32, c *float32, cStep int, add *float32)
func plane3AVX2(taps int, offsets *int, each int, x *float32, xStep int, w *float32, c *float32, cStep int, add *float32)
func plane4AVX2(taps int, offsets *int, each int, x *float32, xStep int, w *float32, c *float32, cStep int, add *float32)
func plane5AVX2(taps int, offsets *int, each int, x *float32, xStep int, w *float32, c *float32, cStep int, add *float32)
func plane6AVX2(taps int, offsets *int, each int, x *float32, xStep int, w *float32, c *float32, cStep int, add *float32)
func plane7AVX2(taps int, offsets *int, each int, x *float32, xStep int, w *float32, c *float32, cStep int, add *float32)
func plane8AVX2(taps int, offsets *int, each int, x *float32, xStep int, w *float32, c *float32, cStep int, add *float32)
func plane9AVX2(taps int, offsets *int, each int, x *float32, xStep int, w *float32, c *float32, cStep int, add *float32)
func plane10AVX2(taps int, offsets *int, each int, x *float32, xStep int, w *float32, c *float32, cStep int, add *float32)
func plane11AVX2(taps int, offsets *int, each int, x *float32, xStep int, w *float32, c *float32, cStep int, add *float32)
func plane12AVX2(taps int, offsets *int, each int, x *float32, xStep int, w *float32, c *float32, cStep int, add *float32)
func planeFillAVX2(to *float32, step, toStep int, from *float32, fromStep, groups, n int)
func planeWeightsAVX2(lines, n int, x0, x1, x2 *float32, xStep, xLine int, dy *float32, dyStep, dyLine int, sums *float32)

// planesAVX2 are the functions by their number of places.
func planesAVX2() [planeRows + 1]planeFunc {
	return [planeRows + 1]planeFunc{nil, plane1AVX2, plane2AVX2, plane3AVX2, plane4AVX2, plane5AVX2, plane6AVX2, plane7AVX2, plane8AVX2, plane9AVX2, plane10AVX2, plane11AVX2, plane12AVX2}
}
