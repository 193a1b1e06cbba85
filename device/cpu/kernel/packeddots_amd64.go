package kernel

func dotQ4KAVX2(blocks int, x, sums32 *float32, b *byte) float32
func dotQ6KAVX2(blocks int, x *float32, b *byte) float32
func dotFourBitAVX2(blocks int, x *float32, codes *byte, scales, values *float32) float32
func dotI8AVX2(k int, x *float32, codes *byte) float32
func dotQ4KAVX512(blocks int, x, sums32 *float32, b *byte) float32
func dotQ6KAVX512(blocks int, x *float32, b *byte) float32

// dotQ4K multiplies blocks of Q4_K by x, whose sums of 32 are given.
func dotQ4K(x, sums32 []float32, b []byte) float32 {
	if active.wideDots {
		return dotQ4KAVX512(len(x)/256, &x[0], &sums32[0], &b[0])
	}
	return dotQ4KAVX2(len(x)/256, &x[0], &sums32[0], &b[0])
}

// dotQ6K multiplies blocks of Q6_K.
func dotQ6K(x []float32, b []byte) float32 {
	if active.wideDots {
		return dotQ6KAVX512(len(x)/256, &x[0], &b[0])
	}
	return dotQ6KAVX2(len(x)/256, &x[0], &b[0])
}

// dotFourBit multiplies blocks of 64 codes of four bits, with a scale each, by x in the order of splitPairs.
func dotFourBit(x []float32, codes []byte, scales []float32, values *[16]float32) float32 {
	return dotFourBitAVX2(len(x)/64, &x[0], &codes[0], &scales[0], &values[0])
}

// dotI8 multiplies integers, a multiple of 64 of them.
func dotI8(x []float32, codes []byte) float32 { return dotI8AVX2(len(x), &x[0], &codes[0]) }
