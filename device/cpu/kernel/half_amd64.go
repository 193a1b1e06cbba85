package kernel

import "spillway/dtype"

func streams1BF16AVX2(k int, s *streams, bStep, aStep, sumStep int, later uintptr)
func streams2BF16AVX2(k int, s *streams, bStep, aStep, sumStep int, later uintptr)
func streams1F16AVX2(k int, s *streams, bStep, aStep, sumStep int, later uintptr)
func streams2F16AVX2(k int, s *streams, bStep, aStep, sumStep int, later uintptr)
func transposeBF16AVX2(dst *float32, dstStep int, src *uint16, srcStep, k int)
func transposeF16AVX2(dst *float32, dstStep int, src *uint16, srcStep, k int)

func bf16AVX2() half {
	h := half{of: dtype.BF16, width: 8, streams: [maxStreamRows + 1]streamsFunc{1: streams1BF16AVX2, 2: streams2BF16AVX2}}
	h.transpose = h.transposeStrips(8, transposeBF16AVX2)
	return h
}

func f16AVX2() half {
	h := half{of: dtype.F16, width: 8, streams: [maxStreamRows + 1]streamsFunc{1: streams1F16AVX2, 2: streams2F16AVX2}}
	h.transpose = h.transposeStrips(8, transposeF16AVX2)
	return h
}
