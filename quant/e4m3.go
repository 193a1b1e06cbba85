package quant

import (
	"fmt"

	"spillway/dtype"
)

// E4M3 is 8-bit floats without any scale, a byte each: what PyTorch's weight.to(float8_e4m3fn) has, and diffusers' layerwise
// casting stores.
var E4M3 = Register(Codec{
	Name: "e4m3", Alias: "float8_e4m3fn", Title: "8 bits: e4m3 floats without scales, as layerwise casting has them", Block: 1,
	Bytes: func(n int64) int64 { return n },
	Encode: func(dst []byte, src []float32, _ int) error {
		for i, x := range src {
			if x > largestF8 || x < -largestF8 {
				return fmt.Errorf("element %d is %v, the largest float8_e4m3fn is %d; take fp8, which has a scale for each row", i, x, largestF8)
			}
			dst[i] = dtype.ToF8E4M3(x)
		}
		return nil
	},
	Decode: func(dst []float32, storage []byte, _, _, first int) {
		for i, c := range storage[first : first+len(dst)] {
			dst[i] = valuesF8[c]
		}
	},
})
