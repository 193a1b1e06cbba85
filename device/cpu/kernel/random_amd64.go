package kernel

func dropAVX512(dst, x []float32, s dropScalars)
func dropLineAVX2(x []float32, w *lineWords, s lineScalars)
func roundStatesAVX512(dst []uint16, src []float32, at uint64)
func roundStatesAVX2(dst []uint16, src []float32, at uint64)
func roundWeightsAVX512(dst []uint16, src []float32, at uint64)
func roundWeightsAVX2(dst []uint16, src []float32, at uint64)
