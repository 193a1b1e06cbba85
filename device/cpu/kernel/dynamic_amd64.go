package kernel

import "spillway/quant"

func dynamicValuesAVX512(dst []float32, codes []byte, absmax float32, values *[256]float32)

func fromDynamicAVX512(dst []float32, codes []byte, absmax float32, code *quant.Dynamic) {
	dynamicValuesAVX512(dst, codes, absmax, &code.Values)
}
