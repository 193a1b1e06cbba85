package dtype

import (
	"encoding/binary"
	"math"
	"slices"
)

// Plain lists the types numbers are computed and stored in, one by one.
var Plain = []Type{F32, BF16, F16}

// IsPlain says whether Encode and Decode know the type.
func (t Type) IsPlain() bool { return slices.Contains(Plain, t) }

// Encode writes numbers as elements of a plain type, little endian, rounding to nearest
// even. dst has t.Bytes(len(src)) bytes or more.
func (t Type) Encode(dst []byte, src []float32) {
	switch t {
	case F32:
		for i, f := range src {
			binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(f))
		}
	case BF16:
		for i, f := range src {
			binary.LittleEndian.PutUint16(dst[2*i:], ToBF16(f))
		}
	case F16:
		for i, f := range src {
			binary.LittleEndian.PutUint16(dst[2*i:], ToF16(f))
		}
	}
}

// Decode reads elements of a plain type as numbers; src has t.Bytes(len(dst)) bytes or
// more.
func (t Type) Decode(dst []float32, src []byte) {
	switch t {
	case F32:
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
		}
	case BF16:
		for i := range dst {
			dst[i] = FromBF16(binary.LittleEndian.Uint16(src[2*i:]))
		}
	case F16:
		for i := range dst {
			dst[i] = FromF16(binary.LittleEndian.Uint16(src[2*i:]))
		}
	}
}
