package kernel

import (
	"encoding/binary"
	"math"
	"unsafe"

	"spillway/dtype"
	"spillway/quant"
)

// portablePacked is the plain way to multiply by interleaved weights.
func portablePacked() packedRoutines {
	r := packedRoutines{round: roundInputsGo, heights: []int{1}}
	r.tiles[1], r.table = packedTileGo, portableTable()
	for _, t := range []dtype.Type{quant.Q4_0x16, quant.Q8_0x16, quant.Q4_Kx16, quant.Q6_Kx16} {
		f := PackedFormatOf(t)
		r.matvec[f.index] = f.matvecGo
		r.unpack[f.index] = f.unpackGo
	}
	return r
}

// roundInputsGo rounds blocks of 32. Their scale is the power of two that brings the largest
// below 2 to the power of bits+1, or 127/128 of it where integers are split into two signed bytes; one that is not finite
// makes it NaN.
func roundInputsGo(dst *int16, sums *blockSums, x *float32, blocks, bits int) {
	to, found, from := unsafe.Slice(dst, blocks*inputBlock), unsafe.Slice(sums, blocks), unsafe.Slice(x, blocks*inputBlock)
	var spare uint32 // what a mantissa is larger by
	if bits == splitBits {
		spare = 1 << 17
	}
	for b := range found {
		var most uint32
		for _, f := range from[b*inputBlock:][:inputBlock] {
			most = max(most, math.Float32bits(f)&^(1<<31))
		}
		exponent := max(int((most+spare)>>23), bits+1)
		scale, factor := math.Float32frombits(uint32(exponent-bits)<<23), math.Float32frombits(uint32(254+bits-exponent)<<23)
		found[b] = blockSums{scale: scale}
		if most>>23 == 255 {
			found[b].scale = float32(math.NaN())
		}
		for i, f := range from[b*inputBlock:][:inputBlock] {
			q := math.RoundToEven(float64(f * factor))
			if !(math.Abs(q) < 1<<31) {
				q = math.MinInt16
			}
			v := int16(min(max(q, math.MinInt16), math.MaxInt16))
			to[b*inputBlock+i] = v
			found[b].sums[i/16] += int32(v)
		}
	}
}

func (f *PackedFormat) matvecGo(w *byte, x *int16, records *record, dst *float32, blocks, groups int) {
	n, size := blocks*f.block, blocks*f.bytes*quant.InterleavedRows
	pairs, each := make([]int16, 2*n*panelN), panelN*n/f.sub
	scales, minima := make([]float32, each), make([]float32, each)
	for g := range groups {
		f.unpackGo((*byte)(unsafe.Add(unsafe.Pointer(w), g*size)), &pairs[0], &scales[0], &minima[0], blocks)
		c := unsafe.Slice(at(dst, panelN*g), panelN)
		clear(c)
		least := &minima[0]
		if !f.minima {
			least = nil
		}
		packedTileGo(x, 0, records, 0, &pairs[0], &scales[0], least, &c[0], 0, n/f.sub, f.sub/2)
	}
}

func (f *PackedFormat) unpackGo(w *byte, pairs *int16, scales, minima *float32, blocks int) {
	size := f.bytes * quant.InterleavedRows
	from := unsafe.Slice(w, blocks*size)
	for b := range blocks {
		block := from[b*size:][:size]
		for r := range quant.InterleavedRows {
			for i := range f.block {
				p := b*f.block + i
				*(*int16)(unsafe.Add(unsafe.Pointer(pairs), 64*(p/2)+4*r+2*(p%2))) = f.code(block, r, i)
			}
			for s := range f.block / f.sub {
				j := b*(f.block/f.sub) + s
				scale, least := f.scales(block, r, s)
				*at(scales, panelN*j+r) = scale
				if f.minima {
					*at(minima, panelN*j+r) = -least
				}
			}
		}
	}
}

// packedTileGo is the tile of one row.
func packedTileGo(x *int16, _ int, records *record, _ int, pairs *int16, scales, minima *float32, c *float32, _, subs, length int) {
	in, known := unsafe.Slice(x, 2*subs*length), unsafe.Slice(records, subs)
	codes := unsafe.Slice(pairs, 2*panelN*subs*length)
	for n := range panelN {
		sum := *at(c, n)
		for j, r := range known {
			whole := r.first
			for p := j * length; p < (j+1)*length; p++ {
				whole += int32(in[2*p])*int32(codes[2*panelN*p+2*n]) + int32(in[2*p+1])*int32(codes[2*panelN*p+2*n+1])
			}
			sum += float32(float32(whole) * float32(*at(scales, panelN*j+n)*r.scale))
			if minima != nil {
				sum += float32(*at(minima, panelN*j+n) * r.sum)
			}
		}
		*at(c, n) = sum
	}
}

// Codes and scales of row r of sixteen interleaved blocks.

func halfAt(w []byte) float32 { return dtype.FromF16(binary.LittleEndian.Uint16(w)) }

// codesOf is where a row has its codes, words 64 bytes apart, behind scales of eight rows of so many bytes, twice.
func codesOf(w []byte, r, scales int) []byte { return w[2*scales+r/8*32+r%8*4:] }

// scalesOf is where the eight rows of r have their scales.
func scalesOf(w []byte, r, scales int) []byte { return w[r/8*scales:] }

// nibbleAt is code i of words of eight.
func nibbleAt(words []byte, i int) int16 {
	return int16(words[i/8*64+i%2*2+i%8/4] >> (i / 2 % 2 * 4) & 15)
}

func codeQ4_0(w []byte, r, i int) int16 { return nibbleAt(codesOf(w, r, 16), i) }
func codeQ4K(w []byte, r, i int) int16  { return nibbleAt(codesOf(w, r, 128), i) }
func codeQ8_0(w []byte, r, i int) int16 {
	return int16(int8(codesOf(w, r, 16)[i/4*64+i%2*2+i/2%2]))
}

// codeQ6K reads the lower six bits of a byte, or the upper two of three.
func codeQ6K(w []byte, r, i int) int16 {
	sixteen := codesOf(w, r, 144)[i/16*192+i%2*2+i%8/4:]
	if v := i%16/8*2 + i/2%2; v < 3 {
		return int16(sixteen[64*v] & 63)
	}
	return int16(sixteen[0]>>6 | sixteen[64]>>6<<2 | sixteen[128]>>6<<4)
}

func scalesFirst(w []byte, r, _ int) (scale, minimum float32) { return halfAt(w[2*r:]), 0 }

func scalesQ4K(w []byte, r, sub int) (scale, minimum float32) {
	w, r = scalesOf(w, r, 128), r%8
	lower, upper := w[32+8*sub+r], w[96+sub/2*8+r]>>(sub%2*4)
	return halfAt(w[2*r:]) * float32(lower&15|upper&3<<4), halfAt(w[16+2*r:]) * float32(lower>>4|upper>>2&3<<4)
}

func scalesQ6K(w []byte, r, sub int) (scale, minimum float32) {
	w, r = scalesOf(w, r, 144), r%8
	return halfAt(w[2*r:]) * float32(int8(w[16+8*sub+r])), 0
}
