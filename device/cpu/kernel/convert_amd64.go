package kernel

//go:noescape
func fromBF16AVX512(dst []float32, src []uint16)

//go:noescape
func toBF16AVX512(dst []uint16, src []float32)

//go:noescape
func fromF16AVX512(dst []float32, src []uint16)

//go:noescape
func toF16AVX512(dst []uint16, src []float32)

//go:noescape
func fromBF16AVX2(dst []float32, src []uint16)

//go:noescape
func toBF16AVX2(dst []uint16, src []float32)

//go:noescape
func fromF16AVX2(dst []float32, src []uint16)

//go:noescape
func toF16AVX2(dst []uint16, src []float32)
