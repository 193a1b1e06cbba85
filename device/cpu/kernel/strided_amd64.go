package kernel

func stridedInAVX2(dst *float32, table *[StridedTerms]int, src *float32, row, col, n int)
func stridedOutAVX2(dst *float32, row, col int, src *float32, xi int, add *float32, n int)
func stridedGradAVX2(dst *float32, xi int, src *float32, row, col, n int)
func stridedBackInAVX2(dst *float32, xi int, src *float32, row, col, n int)
func stridedBackOutAVX2(dst *float32, row, col int, src *float32, table *[StridedTerms]int, n int)

func stridedAVX2() strided {
	return strided{stridedInAVX2, stridedOutAVX2, stridedGradAVX2, stridedBackInAVX2, stridedBackOutAVX2}
}
