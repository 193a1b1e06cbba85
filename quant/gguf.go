package quant

import (
	"encoding/binary"

	"spillway/dtype"
)

// The block types of GGUF files. Every block lies by itself: its scales and its codes
// together, little endian. ggufcodes.go has how each is decoded and encoded.
var (
	Q8_0  = Register(ggufCodec("q8_0", 32, 34, decodeQ8_0, encodeQ8_0, "8.5 bits: integers, a scale per 32, as in GGUF files"))
	Q4_0  = Register(ggufCodec("q4_0", 32, 18, decodeQ4_0, encodeQ4_0, "4.5 bits: integers, a scale per 32, as in GGUF files"))
	Q4_1  = Register(ggufCodec("q4_1", 32, 20, decodeQ4_1, encodeQ4_1, "5 bits: integers, a scale and a minimum per 32, as in GGUF files"))
	Q5_0  = Register(ggufCodec("q5_0", 32, 22, decodeQ5_0, encodeQ5_0, "5.5 bits: integers, a scale per 32, as in GGUF files"))
	Q5_1  = Register(ggufCodec("q5_1", 32, 24, decodeQ5_1, encodeQ5_1, "6 bits: integers, a scale and a minimum per 32, as in GGUF files"))
	Q2_K  = Register(ggufCodec("q2_k", 256, 84, decodeQ2K, encodeQ2K, "2.6 bits: blocks of 16 in groups of 256, as in GGUF files"))
	Q3_K  = Register(ggufCodec("q3_k", 256, 110, decodeQ3K, encodeQ3K, "3.4 bits: blocks of 16 in groups of 256, as in GGUF files"))
	Q4_K  = Register(ggufCodec("q4_k", 256, 144, decodeQ4K, encodeQ4K, "4.5 bits: blocks of 32 in groups of 256, as in GGUF files"))
	Q5_K  = Register(ggufCodec("q5_k", 256, 176, decodeQ5K, encodeQ5K, "5.5 bits: blocks of 32 in groups of 256, as in GGUF files"))
	Q6_K  = Register(ggufCodec("q6_k", 256, 210, decodeQ6K, encodeQ6K, "6.6 bits: blocks of 16 in groups of 256, as in GGUF files"))
	IQ4NL = Register(ggufCodec("iq4_nl", 32, 18, decodeIQ4NL, encodeIQ4NL, "4.5 bits: 16 uneven values, a scale per 32, as in GGUF files"))
	IQ4XS = Register(ggufCodec("iq4_xs", 256, 136, decodeIQ4XS, encodeIQ4XS, "4.3 bits: 16 uneven values, blocks of 32 in groups of 256, as in GGUF files"))
	MXFP4 = Register(ggufCodec("mxfp4", 32, 17, decodeMXFP4, encodeMXFP4, "4.3 bits: e2m1 floats, a power of two per 32, as in GGUF files"))
)

// maxGGUFBlock is the most elements that a block of a GGUF type has.
const maxGGUFBlock = 256

// ggufCodec makes the codec of a type from functions on one block. The end of a tensor that
// is no whole block is filled with zeros.
func ggufCodec(name string, block, bytes int, decode func(dst []float32, b []byte), encode func(b []byte, src []float32), title string) Codec {
	return Codec{
		Name: name, Title: title, Block: block,
		Bytes: func(n int64) int64 { return (n + int64(block) - 1) / int64(block) * int64(bytes) },
		Encode: func(dst []byte, src []float32, _ int) error {
			var end [maxGGUFBlock]float32
			for ; len(src) > 0; dst = dst[bytes:] {
				n := min(block, len(src))
				from := src[:n]
				if n < block {
					from = end[:block]
					copy(from, src)
				}
				encode(dst[:bytes], from)
				src = src[n:]
			}
			return nil
		},
		Decode: func(dst []float32, storage []byte, _, _, first int) {
			var whole [maxGGUFBlock]float32
			for len(dst) > 0 {
				b := storage[first/block*bytes:][:bytes]
				if skip := first % block; skip != 0 || len(dst) < block {
					decode(whole[:block], b)
					n := copy(dst, whole[skip:block])
					dst, first = dst[n:], first+n
					continue
				}
				decode(dst[:block], b)
				dst, first = dst[block:], first+block
			}
		},
	}
}

func half(b []byte) float32 { return dtype.FromF16(binary.LittleEndian.Uint16(b)) }

// putHalf stores a scale and gives it back as it is stored.
func putHalf(b []byte, f float32) float32 {
	h := dtype.ToF16(f)
	binary.LittleEndian.PutUint16(b, h)
	return dtype.FromF16(h)
}
