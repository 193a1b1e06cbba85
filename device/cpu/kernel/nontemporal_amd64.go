package kernel

func nonTemporalAVX2(dst, src *float32, n int)
