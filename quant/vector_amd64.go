package quant

import "golang.org/x/sys/cpu"

func available() []path {
	all := []path{portable}
	if cpu.X86.HasAVX2 && cpu.X86.HasFMA { // every CPU that has both converts f16
		all = append(all, path{"avx2", fourBitAVX2, largestAVX2, rowI8AVX2, dynamicAVX2, true})
	}
	if cpu.X86.HasAVX512F && cpu.X86.HasAVX512BW && cpu.X86.HasAVX512DQ && cpu.X86.HasAVX512VL {
		all = append(all, path{"avx512", fourBitAVX512, largestAVX512, rowI8AVX512, dynamicAVX512, true})
	}
	return all
}

func fourBitAVX512(codes []byte, absmax, src []float32, s *search)
func largestAVX512(x []float32) (bits uint32)
func rowI8AVX512(codes []byte, row []float32, factor float32)
func dynamicAVX512(codes []byte, src []float32, r float32, cells *Cells, zero, below uint32)
func fourBitAVX2(codes []byte, absmax, src []float32, s *search)
func largestAVX2(x []float32) (bits uint32)
func rowI8AVX2(codes []byte, row []float32, factor float32)
func dynamicAVX2(codes []byte, src []float32, r float32, cells *Cells, zero, below uint32)

//go:noescape
func fitAffineVector(f *fitting)

//go:noescape
func fitSymmetricVector(f *fitting)
