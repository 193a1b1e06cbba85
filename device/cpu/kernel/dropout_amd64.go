package kernel

func dropAVX512(dst, x []float32, s dropScalars)
