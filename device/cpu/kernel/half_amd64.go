package kernel

import "spillway/dtype"

func streams1BF16AVX2(k int, s *streams, bStep, aStep, sumStep int, later uintptr)
func streams2BF16AVX2(k int, s *streams, bStep, aStep, sumStep int, later uintptr)
func streams1F16AVX2(k int, s *streams, bStep, aStep, sumStep int, later uintptr)
func streams2F16AVX2(k int, s *streams, bStep, aStep, sumStep int, later uintptr)
func widenRowsBF16AVX2(dst *float32, dstStep int, src *uint16, srcStep, k int)
func widenRowsF16AVX2(dst *float32, dstStep int, src *uint16, srcStep, k int)
func transposeBF16AVX2(dst *float32, dstStep int, src *uint16, srcStep, k int)
func transposeF16AVX2(dst *float32, dstStep int, src *uint16, srcStep, k int)

func interleaved1BF16AVX2(k int, a *float32, aStep int, b *uint16, sums *float32)
func interleaved2BF16AVX2(k int, a *float32, aStep int, b *uint16, sums *float32)
func interleaved4BF16AVX2(k int, a *float32, aStep int, b *uint16, sums *float32)
func interleaved1F16AVX2(k int, a *float32, aStep int, b *uint16, sums *float32)
func interleaved2F16AVX2(k int, a *float32, aStep int, b *uint16, sums *float32)
func interleaved4F16AVX2(k int, a *float32, aStep int, b *uint16, sums *float32)
func deinterleaveBF16AVX2(dst *float32, step int, src *uint16, k int)
func deinterleaveF16AVX2(dst *float32, step int, src *uint16, k int)

func togetherBF16AVX2(dst *float32, step, half int, src *uint16, k int)
func togetherF16AVX2(dst *float32, step, half int, src *uint16, k int)

func bf16AVX2() half {
	h := half{of: dtype.BF16, width: 8, streams: [maxStreamRows + 1]streamsFunc{1: streams1BF16AVX2, 2: streams2BF16AVX2}}
	h.interleaved = [maxStreamRows + 1]interleavedFunc{1: interleaved1BF16AVX2, 2: interleaved2BF16AVX2, 4: interleaved4BF16AVX2}
	h.widenRows, h.transpose, h.deinterleave = widenRowsBF16AVX2, h.transposeStrips(8, transposeBF16AVX2), h.deinterleaveEights(deinterleaveBF16AVX2)
	return h
}

func f16AVX2() half {
	h := half{of: dtype.F16, width: 8, streams: [maxStreamRows + 1]streamsFunc{1: streams1F16AVX2, 2: streams2F16AVX2}}
	h.interleaved = [maxStreamRows + 1]interleavedFunc{1: interleaved1F16AVX2, 2: interleaved2F16AVX2, 4: interleaved4F16AVX2}
	h.widenRows, h.transpose, h.deinterleave = widenRowsF16AVX2, h.transposeStrips(8, transposeF16AVX2), h.deinterleaveEights(deinterleaveF16AVX2)
	return h
}
