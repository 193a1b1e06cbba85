package kernel

func dotsBF16AVX2(rows, k int, a *float32, b *uint16, bStep int, sums *float32, ahead int)
func dotsBF16FourAVX2(rows, k int, a *float32, aStep int, b *uint16, bStep int, sums *float32, sumStep, ahead int)
func dotsBF16AVX512(rows, k int, a *float32, b *uint16, bStep int, sums *float32, ahead int)
func dotsBF16FourAVX512(rows, k int, a *float32, aStep int, b *uint16, bStep int, sums *float32, sumStep, ahead int)

// bf16Dots multiplies a vector by rows of a weight, bStep elements apart, and gives a sum for each. It fetches
// memory so many bytes ahead. K is a multiple of dotsK.
func bf16Dots(rows, k int, a *float32, b *uint16, bStep int, sums *float32, ahead int) {
	if active.wideDots {
		dotsBF16AVX512(rows, k, a, b, bStep, sums, ahead)
		return
	}
	dotsBF16AVX2(rows, k, a, b, bStep, sums, ahead)
}

// bf16FourDots is the same of four vectors, aStep elements apart; sums of each are sumStep apart.
func bf16FourDots(rows, k int, a *float32, aStep int, b *uint16, bStep int, sums *float32, sumStep, ahead int) {
	if active.wideDots {
		dotsBF16FourAVX512(rows, k, a, aStep, b, bStep, sums, sumStep, ahead)
		return
	}
	dotsBF16FourAVX2(rows, k, a, aStep, b, bStep, sums, sumStep, ahead)
}
