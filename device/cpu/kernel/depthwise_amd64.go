package kernel

func depthwise1AVX2(taps int, offsets *[2]int, x *float32, step int, w, c *float32, cStep int, add *float32)
func depthwise2AVX2(taps int, offsets *[2]int, x *float32, step int, w, c *float32, cStep int, add *float32)
func depthwise3AVX2(taps int, offsets *[2]int, x *float32, step int, w, c *float32, cStep int, add *float32)
func depthwise4AVX2(taps int, offsets *[2]int, x *float32, step int, w, c *float32, cStep int, add *float32)
func depthwise5AVX2(taps int, offsets *[2]int, x *float32, step int, w, c *float32, cStep int, add *float32)
func depthwise6AVX2(taps int, offsets *[2]int, x *float32, step int, w, c *float32, cStep int, add *float32)
func depthwise7AVX2(taps int, offsets *[2]int, x *float32, step int, w, c *float32, cStep int, add *float32)
func depthwise8AVX2(taps int, offsets *[2]int, x *float32, step int, w, c *float32, cStep int, add *float32)
func depthwise9AVX2(taps int, offsets *[2]int, x *float32, step int, w, c *float32, cStep int, add *float32)
func depthwise10AVX2(taps int, offsets *[2]int, x *float32, step int, w, c *float32, cStep int, add *float32)
func depthwise11AVX2(taps int, offsets *[2]int, x *float32, step int, w, c *float32, cStep int, add *float32)
func depthwise12AVX2(taps int, offsets *[2]int, x *float32, step int, w, c *float32, cStep int, add *float32)

func depthwiseAVX2() [planeRows + 1]depthwiseFunc {
	return [planeRows + 1]depthwiseFunc{nil, depthwise1AVX2, depthwise2AVX2, depthwise3AVX2, depthwise4AVX2, depthwise5AVX2, depthwise6AVX2, depthwise7AVX2, depthwise8AVX2, depthwise9AVX2, depthwise10AVX2, depthwise11AVX2, depthwise12AVX2}
}
