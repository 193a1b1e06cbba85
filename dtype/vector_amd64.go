package dtype

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

func available() []path {
	all := []path{portable()}
	if cpu.X86.HasAVX2 && cpu.X86.HasFMA { // every CPU that has both converts f16
		all = append(all, path{"avx2", widenBF16AVX2, widenF16AVX2, narrowBF16AVX2, narrowF16AVX2, awayBF16AVX2, awayF16AVX2})
	}
	if cpu.X86.HasAVX512F {
		all = append(all, path{"avx512", widenBF16AVX512, widenF16AVX512, narrowBF16AVX512, narrowF16AVX512, awayBF16AVX512, awayF16AVX512})
	}
	return all
}

// asElements views bytes as elements without copying: this CPU is little endian and reads
// from any address.
func asElements[E float32 | uint16](b []byte) ([]E, bool) {
	var e E
	return unsafe.Slice((*E)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(e))), true
}

func widenBF16AVX512(dst []float32, src []uint16)
func narrowBF16AVX512(dst []uint16, src []float32)
func awayBF16AVX512(dst []uint16, src []float32)
func widenF16AVX512(dst []float32, src []uint16)
func narrowF16AVX512(dst []uint16, src []float32)
func awayF16AVX512(dst []uint16, src []float32)
func widenBF16AVX2(dst []float32, src []uint16)
func narrowBF16AVX2(dst []uint16, src []float32)
func awayBF16AVX2(dst []uint16, src []float32)
func widenF16AVX2(dst []float32, src []uint16)
func narrowF16AVX2(dst []uint16, src []float32)
func awayF16AVX2(dst []uint16, src []float32)
