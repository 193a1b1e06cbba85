// Package quant quantizes tensors and decodes them again. A Codec is a block format, one
// file each: it registers itself with its name, its layout and plain functions on slices,
// and from then on files, plans, ops and devices know it. Those here are the formats of the
// bitsandbytes library and of GGUF files, bit for bit, and 8-bit floats by rows.
//
// Numbers are taken in blocks. In the formats of bitsandbytes a block is divided by its
// largest magnitude, the absmax, and each quotient becomes the code of the nearest of 16 or
// 256 fixed values; gguf.go describes the others. Every codec has a plain form, which follows
// its description, and a fast one, which tests compare with the plain one.
//
// # Storage of block types
//
// A tensor of a block type is one run of exactly dtype.Type.Bytes(n) bytes, numbers
// little endian, n elements counted over the flattened tensor, so that blocks may
// cross rows.
//
// NF4 and FP4 have blocks of 64. The absmax of a block is itself an 8-bit code: the
// mean of all absmax is taken off and the rest is coded in groups of 256 blocks.
//
//	codes    ceil(n/2) bytes, two elements each, the first in the upper four bits; an
//	         odd end is filled with the code of 0
//	scales   one byte per block: a signed dynamic code
//	groups   one f32 per group of 256 blocks: the absmax of its scales
//	offset   one f32: the mean
//
//	absmax of block b = signed[scales[b]] · groups[b/256] + offset
//	element i         = value[code of i] · absmax of block i/64
//
// each multiplication and addition rounded to f32. Groups and offset are at a multiple of
// four bytes where n is a multiple of 256, and otherwise at any.
//
// Dyn8 and UDyn8, the signed and unsigned dynamic codes, have blocks of 256.
//
//	absmax   one f32 per block
//	codes    n bytes
//
//	element i = map[codes[i]] · absmax[i/256]
//
// RowI8 and RowF8 have blocks of one row of the tensor, whose scale is its absmax, or for
// RowF8 its absmax divided by 448, the largest 8-bit float. Blocks of RowI8 are those of
// LLM.int8: integers, in 127ths of an absmax that f16 can hold.
//
//	codes    n bytes
//	scales   one f32 per row
//
//	element (r, i) = codes[r, i] · scales[r] / 127    or    f8[codes[r, i]] · scales[r]
//
// A tensor of zero bytes is a tensor of zeros. The dynamic types hold optimizer state, where
// a small number means something else than none: one that is not zero is never stored as
// zero.
package quant

import (
	"encoding/binary"
	"math"
)

// firstNonFinite finds the first element that is infinite or NaN, -1 if none is.
func firstNonFinite(src []float32) int {
	const infinity = 0x7f800000
	if math.Float32bits(AbsMax(src)) < infinity {
		return -1
	}
	for i, f := range src {
		if math.Float32bits(f)&infinity == infinity {
			return i
		}
	}
	return -1
}

// minAbsmax is the least that a block is divided by, so that the reciprocal is finite. The
// quotients of a block below it stay below 1.
const minAbsmax = 1e-38

// Reciprocal is the factor that brings a block to [-1, 1].
func Reciprocal(absmax float32) float32 { return 1 / max(absmax, minAbsmax) }

func getF32(b []byte, i int) float32 {
	return math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
}

func putF32(b []byte, i int, f float32) {
	binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(f))
}

func ceil(n, d int) int { return (n + d - 1) / d }
