package dtype

import (
	"encoding/binary"
	"math"
	"slices"
)

// Plain lists the types that numbers are computed with and stored in one by one.
var Plain = []Type{F32, BF16, F16}

// IsPlain says whether Encode and Decode know the type.
func (t Type) IsPlain() bool { return slices.Contains(Plain, t) }

// Encode writes numbers as elements of a plain type, little endian, rounding to nearest
// even. dst has t.Bytes(len(src)) bytes or more.
func (t Type) Encode(dst []byte, src []float32) {
	switch t {
	case F32:
		if whole, ok := asElements[float32](dst); ok {
			copy(whole, src)
			return
		}
		for i, f := range src {
			binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(f))
		}
	case BF16, F16:
		if halves, ok := asElements[uint16](dst); ok {
			t.Narrow(halves[:len(src)], src)
			return
		}
		t.encodeHalves(dst, src)
	}
}

func (t Type) encodeHalves(dst []byte, src []float32) {
	one := ToBF16
	if t == F16 {
		one = ToF16
	}
	for i, f := range src {
		binary.LittleEndian.PutUint16(dst[2*i:], one(f))
	}
}

// Decode reads elements of a plain type as numbers; src has t.Bytes(len(dst)) bytes or
// more.
func (t Type) Decode(dst []float32, src []byte) {
	switch t {
	case F32:
		if whole, ok := asElements[float32](src); ok {
			copy(dst, whole)
			return
		}
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
		}
	case BF16, F16:
		if halves, ok := asElements[uint16](src); ok {
			t.Widen(dst, halves)
			return
		}
		t.decodeHalves(dst, src)
	}
}

func (t Type) decodeHalves(dst []float32, src []byte) {
	one := FromBF16
	if t == F16 {
		one = FromF16
	}
	for i := range dst {
		dst[i] = one(binary.LittleEndian.Uint16(src[2*i:]))
	}
}
