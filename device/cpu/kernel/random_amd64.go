package kernel

func dropAVX512(dst, x []float32, s dropScalars)
func roundStatesAVX512(dst []uint16, src []float32, at uint64)
func roundStatesAVX2(dst []uint16, src []float32, at uint64)
