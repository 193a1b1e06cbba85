package kernel

//go:noescape
func saturateAVX512(rounds int, sums *float32)

//go:noescape
func saturateAVX2(rounds int, sums *float32)
