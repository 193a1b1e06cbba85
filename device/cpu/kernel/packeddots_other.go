//go:build !amd64

package kernel

func dotQ4K(x, sums32 []float32, b []byte) float32                                        { return 0 }
func dotQ6K(x []float32, b []byte) float32                                                { return 0 }
func dotFourBit(x []float32, codes []byte, scales []float32, values *[16]float32) float32 { return 0 }
func dotI8(x []float32, codes []byte) float32                                             { return 0 }
