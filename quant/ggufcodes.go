package quant

import (
	"encoding/binary"
	"math"
)

// Decoding of the GGUF types: every product and difference is rounded to f32, scales of
// scales first, so that the numbers are those of the reference decoder to the bit.

func decodeQ8_0(dst []float32, b []byte) {
	d := half(b)
	for i := range dst {
		dst[i] = d * float32(int8(b[2+i]))
	}
}

// nibbleOf is element i of 32 whose codes are those of i and i+16 in one byte.
func nibbleOf(codes []byte, i int) byte { return codes[i&15] >> (i >> 4 << 2) & 15 }

func decodeQ4_0(dst []float32, b []byte) {
	d := half(b)
	for i := range dst {
		dst[i] = d * float32(int(nibbleOf(b[2:], i))-8)
	}
}

func decodeQ4_1(dst []float32, b []byte) {
	d, m := half(b), half(b[2:])
	for i := range dst {
		dst[i] = float32(d*float32(nibbleOf(b[4:], i))) + m
	}
}

// fifth is element i of 32 with its fifth bit in a word of its own.
func fifth(codes []byte, high uint32, i int) int {
	return int(nibbleOf(codes, i)) | int(high>>i&1)<<4
}

func decodeQ5_0(dst []float32, b []byte) {
	d, high := half(b), binary.LittleEndian.Uint32(b[2:])
	for i := range dst {
		dst[i] = d * float32(fifth(b[6:], high, i)-16)
	}
}

func decodeQ5_1(dst []float32, b []byte) {
	d, m, high := half(b), half(b[2:]), binary.LittleEndian.Uint32(b[4:])
	for i := range dst {
		dst[i] = float32(d*float32(fifth(b[8:], high, i))) + m
	}
}

// twoBits is element i of 256: four elements, 32 apart, share a byte.
func twoBits(codes []byte, i int) int {
	return int(codes[i>>7<<5|i&31] >> (i >> 5 & 3 << 1) & 3)
}

func decodeQ2K(dst []float32, b []byte) {
	scales, codes, d, dmin := b, b[16:], half(b[80:]), half(b[82:])
	for j := range 16 {
		scale, least := d*float32(scales[j]&15), dmin*float32(scales[j]>>4)
		for i := 16 * j; i < 16*j+16; i++ {
			dst[i] = float32(scale*float32(twoBits(codes, i))) - least
		}
	}
}

// scaleQ3K is the 6-bit scale of the j-th 16 elements.
func scaleQ3K(scales []byte, j int) int {
	low, high := scales[j&7]>>(j>>3<<2)&15, scales[8+j&3]>>(j>>2<<1)&3
	return int(low|high<<4) - 32
}

func decodeQ3K(dst []float32, b []byte) {
	high, codes, scales, d := b, b[32:], b[96:], half(b[108:])
	for j := range 16 {
		scale := d * float32(scaleQ3K(scales, j))
		for i := 16 * j; i < 16*j+16; i++ {
			q := twoBits(codes, i) + int(high[i&31]>>(i>>5)&1)<<2 - 4
			dst[i] = scale * float32(q)
		}
	}
}

// pairK is the j-th of eight pairs of 6-bit numbers in 12 bytes: a scale and a minimum.
func pairK(b []byte, j int) (scale, least byte) {
	if j < 4 {
		return b[j] & 63, b[j+4] & 63
	}
	return b[j+4]&15 | b[j-4]>>6<<4, b[j+4]>>4 | b[j]>>6<<4
}

// nibbleK is element i of 256: two elements, 32 apart, share a byte.
func nibbleK(codes []byte, i int) byte { return codes[i>>6<<5|i&31] >> (i >> 5 & 1 << 2) & 15 }

func decodeQ4K(dst []float32, b []byte) {
	d, dmin, codes := half(b), half(b[2:]), b[16:]
	for j := range 8 {
		s, m := pairK(b[4:], j)
		scale, least := d*float32(s), dmin*float32(m)
		for i := 32 * j; i < 32*j+32; i++ {
			dst[i] = float32(scale*float32(nibbleK(codes, i))) - least
		}
	}
}

func decodeQ5K(dst []float32, b []byte) {
	d, dmin, high, codes := half(b), half(b[2:]), b[16:], b[48:]
	for j := range 8 {
		s, m := pairK(b[4:], j)
		scale, least := d*float32(s), dmin*float32(m)
		for i := 32 * j; i < 32*j+32; i++ {
			dst[i] = float32(scale*float32(nibbleK(codes, i)|high[i&31]>>j&1<<4)) - least
		}
	}
}

func decodeQ6K(dst []float32, b []byte) {
	low, high, scales, d := b, b[128:], b[192:], half(b[208:])
	for j := range 16 {
		scale := d * float32(int8(scales[j]))
		for i := 16 * j; i < 16*j+16; i++ {
			h, g, l := i>>7, i>>5&3, i&31
			q := low[64*h+32*(g&1)+l]>>(g>>1<<2)&15 | high[32*h+l]>>(2*g)&3<<4
			dst[i] = scale * float32(int(q)-32)
		}
	}
}

// unevenValues are those of the iq4 types, e2m1Values those of MXFP4, doubled, so that they
// are integers.
var (
	unevenValues = [16]float32{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}
	e2m1Values   = [16]float32{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}
)

func decodeIQ4NL(dst []float32, b []byte) {
	d := half(b)
	for i := range dst {
		dst[i] = d * unevenValues[nibbleOf(b[2:], i)]
	}
}

// scaleXS is the 6-bit scale of the k-th 32 elements.
func scaleXS(b []byte, k int) int {
	low, high := b[4+k>>1]>>(k&1<<2)&15, byte(binary.LittleEndian.Uint16(b[2:])>>(2*k))&3
	return int(low|high<<4) - 32
}

func decodeIQ4XS(dst []float32, b []byte) {
	d := half(b)
	for k := range 8 {
		scale := d * float32(scaleXS(b, k))
		for i := range 32 {
			dst[32*k+i] = scale * unevenValues[nibbleOf(b[8+16*k:], i)]
		}
	}
}

func decodeMXFP4(dst []float32, b []byte) {
	scale := float32(math.Ldexp(1, int(b[0])-128)) // of half an e2m1 value
	for i := range dst {
		dst[i] = scale * e2m1Values[nibbleOf(b[1:], i)]
	}
}
