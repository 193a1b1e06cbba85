package kernel

//go:noescape
func expAVX512(dst, x []float32)

//go:noescape
func reluAVX512(dst, x []float32)

//go:noescape
func reluTimesAVX512(dst, x, y []float32)

//go:noescape
func reluSlopeAVX512(dst, x, y []float32)

//go:noescape
func reluGatedAVX512(dgate, dup, gate, up, dy []float32)

//go:noescape
func geluAVX512(dst, x []float32)

//go:noescape
func geluTimesAVX512(dst, x, y []float32)

//go:noescape
func geluSlopeAVX512(dst, x, y []float32)

//go:noescape
func geluGatedAVX512(dgate, dup, gate, up, dy []float32)

//go:noescape
func geluTanhAVX512(dst, x []float32)

//go:noescape
func geluTanhTimesAVX512(dst, x, y []float32)

//go:noescape
func geluTanhSlopeAVX512(dst, x, y []float32)

//go:noescape
func geluTanhGatedAVX512(dgate, dup, gate, up, dy []float32)

//go:noescape
func siluAVX512(dst, x []float32)

//go:noescape
func siluTimesAVX512(dst, x, y []float32)

//go:noescape
func siluSlopeAVX512(dst, x, y []float32)

//go:noescape
func siluGatedAVX512(dgate, dup, gate, up, dy []float32)

//go:noescape
func tanhAVX512(dst, x []float32)

//go:noescape
func tanhTimesAVX512(dst, x, y []float32)

//go:noescape
func tanhSlopeAVX512(dst, x, y []float32)

//go:noescape
func tanhGatedAVX512(dgate, dup, gate, up, dy []float32)

//go:noescape
func sigmoidAVX512(dst, x []float32)

//go:noescape
func sigmoidTimesAVX512(dst, x, y []float32)

//go:noescape
func sigmoidSlopeAVX512(dst, x, y []float32)

//go:noescape
func sigmoidGatedAVX512(dgate, dup, gate, up, dy []float32)

//go:noescape
func expAVX2(dst, x []float32)

//go:noescape
func reluAVX2(dst, x []float32)

//go:noescape
func reluTimesAVX2(dst, x, y []float32)

//go:noescape
func reluSlopeAVX2(dst, x, y []float32)

//go:noescape
func reluGatedAVX2(dgate, dup, gate, up, dy []float32)

//go:noescape
func geluAVX2(dst, x []float32)

//go:noescape
func geluTimesAVX2(dst, x, y []float32)

//go:noescape
func geluSlopeAVX2(dst, x, y []float32)

//go:noescape
func geluGatedAVX2(dgate, dup, gate, up, dy []float32)

//go:noescape
func geluTanhAVX2(dst, x []float32)

//go:noescape
func geluTanhTimesAVX2(dst, x, y []float32)

//go:noescape
func geluTanhSlopeAVX2(dst, x, y []float32)

//go:noescape
func geluTanhGatedAVX2(dgate, dup, gate, up, dy []float32)

//go:noescape
func siluAVX2(dst, x []float32)

//go:noescape
func siluTimesAVX2(dst, x, y []float32)

//go:noescape
func siluSlopeAVX2(dst, x, y []float32)

//go:noescape
func siluGatedAVX2(dgate, dup, gate, up, dy []float32)

//go:noescape
func tanhAVX2(dst, x []float32)

//go:noescape
func tanhTimesAVX2(dst, x, y []float32)

//go:noescape
func tanhSlopeAVX2(dst, x, y []float32)

//go:noescape
func tanhGatedAVX2(dgate, dup, gate, up, dy []float32)

//go:noescape
func sigmoidAVX2(dst, x []float32)

//go:noescape
func sigmoidTimesAVX2(dst, x, y []float32)

//go:noescape
func sigmoidSlopeAVX2(dst, x, y []float32)

//go:noescape
func sigmoidGatedAVX2(dgate, dup, gate, up, dy []float32)
