package kernel

func saturateAVX512(rounds int, sums *float32)
func saturateAVX2(rounds int, sums *float32)
