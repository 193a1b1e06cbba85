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

func plane1x16AVX512(taps int, offsets *int, each int, x *float32, xStep int, w *float32, c *float32, cStep int, add *float32)
func plane2x16AVX512(taps int, offsets *int, each int, x *float32, xStep int, w *float32, c *float32, cStep int, add *float32)
func plane3x16AVX512(taps int, offsets *int, each int, x *float32, xStep int, w *float32, c *float32, cStep int, add *float32)
func plane4x16AVX512(taps int, offsets *int, each int, x *float32, xStep int, w *float32, c *float32, cStep int, add *float32)
func plane5x16AVX512(taps int, offsets *int, each int, x *float32, xStep int, w *float32, c *float32, cStep int, add *float32)
func plane6x16AVX512(taps int, offsets *int, each int, x *float32, xStep int, w *float32, c *float32, cStep int, add *float32)
func plane7x16AVX512(taps int, offsets *int, each int, x *float32, xStep int, w *float32, c *float32, cStep int, add *float32)
func plane8x16AVX512(taps int, offsets *int, each int, x *float32, xStep int, w *float32, c *float32, cStep int, add *float32)
func plane9x16AVX512(taps int, offsets *int, each int, x *float32, xStep int, w *float32, c *float32, cStep int, add *float32)
func plane10x16AVX512(taps int, offsets *int, each int, x *float32, xStep int, w *float32, c *float32, cStep int, add *float32)
func plane11x16AVX512(taps int, offsets *int, each int, x *float32, xStep int, w *float32, c *float32, cStep int, add *float32)
func plane12x16AVX512(taps int, offsets *int, each int, x *float32, xStep int, w *float32, c *float32, cStep int, add *float32)

func plane1x32AVX512(taps int, offsets *int, each int, x *float32, xStep int, w *float32, c *float32, cStep int, add *float32)
func plane2x32AVX512(taps int, offsets *int, each int, x *float32, xStep int, w *float32, c *float32, cStep int, add *float32)
func plane3x32AVX512(taps int, offsets *int, each int, x *float32, xStep int, w *float32, c *float32, cStep int, add *float32)
func plane4x32AVX512(taps int, offsets *int, each int, x *float32, xStep int, w *float32, c *float32, cStep int, add *float32)
func plane5x32AVX512(taps int, offsets *int, each int, x *float32, xStep int, w *float32, c *float32, cStep int, add *float32)
func plane6x32AVX512(taps int, offsets *int, each int, x *float32, xStep int, w *float32, c *float32, cStep int, add *float32)
func plane7x32AVX512(taps int, offsets *int, each int, x *float32, xStep int, w *float32, c *float32, cStep int, add *float32)
func plane8x32AVX512(taps int, offsets *int, each int, x *float32, xStep int, w *float32, c *float32, cStep int, add *float32)
func plane9x32AVX512(taps int, offsets *int, each int, x *float32, xStep int, w *float32, c *float32, cStep int, add *float32)
func plane10x32AVX512(taps int, offsets *int, each int, x *float32, xStep int, w *float32, c *float32, cStep int, add *float32)
func plane11x32AVX512(taps int, offsets *int, each int, x *float32, xStep int, w *float32, c *float32, cStep int, add *float32)
func plane12x32AVX512(taps int, offsets *int, each int, x *float32, xStep int, w *float32, c *float32, cStep int, add *float32)

func runWeights9AVX512(lines, n int, x *float32, xStep, xLine int, dy *float32, dyStep, dyLine int, sums *float32)
func runWeights12AVX512(lines, n int, x *float32, xStep, xLine int, dy *float32, dyStep, dyLine int, sums *float32)
func runWeights15AVX512(lines, n int, x *float32, xStep, xLine int, dy *float32, dyStep, dyLine int, sums *float32)
func runWeights18AVX512(lines, n int, x *float32, xStep, xLine int, dy *float32, dyStep, dyLine int, sums *float32)
func runWeights21AVX512(lines, n int, x *float32, xStep, xLine int, dy *float32, dyStep, dyLine int, sums *float32)
func runWeights3x9AVX512(lines, n int, x *float32, apart, xStep, xLine int, dy *float32, dyStep, dyLine int, sums *float32)
func runWeights24AVX512(lines, n int, x *float32, xStep, xLine int, dy *float32, dyStep, dyLine int, sums *float32)

// planesAVX512 are the functions by their number of channels, those of planeWidths, and of places.
func planesAVX512() [len(planeWidths)][planeRows + 1]planeFunc {
	return [len(planeWidths)][planeRows + 1]planeFunc{
		planesAVX2(),
		{nil, plane1x16AVX512, plane2x16AVX512, plane3x16AVX512, plane4x16AVX512, plane5x16AVX512, plane6x16AVX512, plane7x16AVX512, plane8x16AVX512, plane9x16AVX512, plane10x16AVX512, plane11x16AVX512, plane12x16AVX512},
		{nil, plane1x32AVX512, plane2x32AVX512, plane3x32AVX512, plane4x32AVX512, plane5x32AVX512, plane6x32AVX512, plane7x32AVX512, plane8x32AVX512, plane9x32AVX512, plane10x32AVX512, plane11x32AVX512, plane12x32AVX512},
	}
}

// runWeightsAVX512 are the functions by their number of elements of a run.
func runWeightsAVX512() [runTaps + 1]runWeightsFunc {
	return [runTaps + 1]runWeightsFunc{9: runWeights9AVX512, 12: runWeights12AVX512, 15: runWeights15AVX512, 18: runWeights18AVX512, 21: runWeights21AVX512, 24: runWeights24AVX512}
}
