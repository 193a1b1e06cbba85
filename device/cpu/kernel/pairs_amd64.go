package kernel

import "golang.org/x/sys/cpu"

func pairCols6AVX512(k int, a *float32, aStep int, b *float32, bStep int, c *float32, cStep int, cols int, add *float32, addStep int, ahead fetch)
func pairCols4AVX512(k int, a *float32, aStep int, b *float32, bStep int, c *float32, cStep int, cols int, add *float32, addStep int, ahead fetch)
func pairCols2AVX512(k int, a *float32, aStep int, b *float32, bStep int, c *float32, cStep int, cols int, add *float32, addStep int, ahead fetch)
func pairCols1AVX512(k int, a *float32, aStep int, b *float32, bStep int, c *float32, cStep int, cols int, add *float32, addStep int, ahead fetch)
func pairRows6AVX512(k int, a *float32, aStep int, b *float32, bStep int, c *float32, cStep int, cols int, add *float32, addStep int, ahead fetch)
func pairRows4AVX512(k int, a *float32, aStep int, b *float32, bStep int, c *float32, cStep int, cols int, add *float32, addStep int, ahead fetch)
func pairRows2AVX512(k int, a *float32, aStep int, b *float32, bStep int, c *float32, cStep int, cols int, add *float32, addStep int, ahead fetch)
func pairRows1AVX512(k int, a *float32, aStep int, b *float32, bStep int, c *float32, cStep int, cols int, add *float32, addStep int, ahead fetch)
func swapPairsAVX512(dst *float32, src *uint16, n int)
func zipPairsAVX512(dst *float32, step int, src *uint16, srcStep, k, width int)
func flushedStreams1BF16AVX2(k int, s *streams, bStep, aStep, sumStep int, later uintptr)
func flushedStreams2BF16AVX2(k int, s *streams, bStep, aStep, sumStep int, later uintptr)

// pairsAVX512 is the fast way of CPUs that have AVX-512 BF16 next to what the path needs.
func pairsAVX512() pairs {
	if !cpu.X86.HasAVX512BF16 {
		return portablePairs()
	}
	return pairs{
		fast:     true,
		tileCols: [maxRows + 1]tileFunc{1: pairCols1AVX512, 2: pairCols2AVX512, 4: pairCols4AVX512, 6: pairCols6AVX512},
		tileRows: [maxRows + 1]tileFunc{1: pairRows1AVX512, 2: pairRows2AVX512, 4: pairRows4AVX512, 6: pairRows6AVX512},
		swap:     swapPairsAVX512, zip: zipPairsAVX512,
		streams: [maxStreamRows + 1]streamsFunc{1: flushedStreams1BF16AVX2, 2: flushedStreams2BF16AVX2},
	}
}
