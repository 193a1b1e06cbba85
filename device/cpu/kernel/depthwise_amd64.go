package kernel

func depthwise1AVX2(taps int, offsets *[2]int, x *float32, step int, w, c *float32, cStep int, add *float32, xNext, cNext, vectors int)
func depthwise2AVX2(taps int, offsets *[2]int, x *float32, step int, w, c *float32, cStep int, add *float32, xNext, cNext, vectors int)
func depthwise3AVX2(taps int, offsets *[2]int, x *float32, step int, w, c *float32, cStep int, add *float32, xNext, cNext, vectors int)
func depthwise4AVX2(taps int, offsets *[2]int, x *float32, step int, w, c *float32, cStep int, add *float32, xNext, cNext, vectors int)
func depthwise5AVX2(taps int, offsets *[2]int, x *float32, step int, w, c *float32, cStep int, add *float32, xNext, cNext, vectors int)
func depthwise6AVX2(taps int, offsets *[2]int, x *float32, step int, w, c *float32, cStep int, add *float32, xNext, cNext, vectors int)
func depthwise7AVX2(taps int, offsets *[2]int, x *float32, step int, w, c *float32, cStep int, add *float32, xNext, cNext, vectors int)
func depthwise8AVX2(taps int, offsets *[2]int, x *float32, step int, w, c *float32, cStep int, add *float32, xNext, cNext, vectors int)
func depthwise9AVX2(taps int, offsets *[2]int, x *float32, step int, w, c *float32, cStep int, add *float32, xNext, cNext, vectors int)
func depthwise10AVX2(taps int, offsets *[2]int, x *float32, step int, w, c *float32, cStep int, add *float32, xNext, cNext, vectors int)
func depthwise11AVX2(taps int, offsets *[2]int, x *float32, step int, w, c *float32, cStep int, add *float32, xNext, cNext, vectors int)
func depthwise12AVX2(taps int, offsets *[2]int, x *float32, step int, w, c *float32, cStep int, add *float32, xNext, cNext, vectors int)
func depthwise1AVX512(taps int, offsets *[2]int, x *float32, step int, w, c *float32, cStep int, add *float32, xNext, cNext, vectors int)
func depthwise2AVX512(taps int, offsets *[2]int, x *float32, step int, w, c *float32, cStep int, add *float32, xNext, cNext, vectors int)
func depthwise3AVX512(taps int, offsets *[2]int, x *float32, step int, w, c *float32, cStep int, add *float32, xNext, cNext, vectors int)
func depthwise4AVX512(taps int, offsets *[2]int, x *float32, step int, w, c *float32, cStep int, add *float32, xNext, cNext, vectors int)
func depthwise5AVX512(taps int, offsets *[2]int, x *float32, step int, w, c *float32, cStep int, add *float32, xNext, cNext, vectors int)
func depthwise6AVX512(taps int, offsets *[2]int, x *float32, step int, w, c *float32, cStep int, add *float32, xNext, cNext, vectors int)
func depthwise7AVX512(taps int, offsets *[2]int, x *float32, step int, w, c *float32, cStep int, add *float32, xNext, cNext, vectors int)
func depthwise8AVX512(taps int, offsets *[2]int, x *float32, step int, w, c *float32, cStep int, add *float32, xNext, cNext, vectors int)
func depthwise9AVX512(taps int, offsets *[2]int, x *float32, step int, w, c *float32, cStep int, add *float32, xNext, cNext, vectors int)
func depthwise10AVX512(taps int, offsets *[2]int, x *float32, step int, w, c *float32, cStep int, add *float32, xNext, cNext, vectors int)
func depthwise11AVX512(taps int, offsets *[2]int, x *float32, step int, w, c *float32, cStep int, add *float32, xNext, cNext, vectors int)
func depthwise12AVX512(taps int, offsets *[2]int, x *float32, step int, w, c *float32, cStep int, add *float32, xNext, cNext, vectors int)
func depthwiseWeights1AVX2(n int, x0, x1, x2, x3 *float32, next, tap, step int, dy *float32, dyStep int, sums *float32, sumStep, vectors int)
func depthwiseWeights2AVX2(n int, x0, x1, x2, x3 *float32, next, tap, step int, dy *float32, dyStep int, sums *float32, sumStep, vectors int)
func depthwiseWeights3AVX2(n int, x0, x1, x2, x3 *float32, next, tap, step int, dy *float32, dyStep int, sums *float32, sumStep, vectors int)
func depthwiseWeights4AVX2(n int, x0, x1, x2, x3 *float32, next, tap, step int, dy *float32, dyStep int, sums *float32, sumStep, vectors int)

func depthwiseAVX2() [planeRows + 1]depthwiseFunc {
	return [planeRows + 1]depthwiseFunc{nil, depthwise1AVX2, depthwise2AVX2, depthwise3AVX2, depthwise4AVX2, depthwise5AVX2, depthwise6AVX2, depthwise7AVX2, depthwise8AVX2, depthwise9AVX2, depthwise10AVX2, depthwise11AVX2, depthwise12AVX2}
}

func depthwiseAVX512() [planeRows + 1]depthwiseFunc {
	return [planeRows + 1]depthwiseFunc{nil, depthwise1AVX512, depthwise2AVX512, depthwise3AVX512, depthwise4AVX512, depthwise5AVX512, depthwise6AVX512, depthwise7AVX512, depthwise8AVX512, depthwise9AVX512, depthwise10AVX512, depthwise11AVX512, depthwise12AVX512}
}

func depthwiseWeightsAVX2() [depthwiseTriples + 1]depthwiseWeightsFunc {
	return [depthwiseTriples + 1]depthwiseWeightsFunc{nil, depthwiseWeights1AVX2, depthwiseWeights2AVX2, depthwiseWeights3AVX2, depthwiseWeights4AVX2}
}
