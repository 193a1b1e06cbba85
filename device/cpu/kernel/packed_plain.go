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
	for _, t := range []dtype.Type{quant.Q4_0x8, quant.Q8_0x8, quant.Q4_Kx8, quant.Q6_Kx8} {
		f := PackedFormatOf(t)
		r.matvec[f.index] = f.matvecGo
		r.unpack[f.index] = f.unpackGo
	}
	return r
}

// roundInputsGo rounds blocks of 32. Their scale is the power of two that brings the largest
// below 2 to the power of bits+1; one that is not finite makes it NaN.
func roundInputsGo(dst *int16, sums *blockSums, x *float32, blocks, bits int) {
	to, found, from := unsafe.Slice(dst, blocks*inputBlock), unsafe.Slice(sums, blocks), unsafe.Slice(x, blocks*inputBlock)
	for b := range found {
		var most uint32
		for _, f := range from[b*inputBlock:][:inputBlock] {
			most = max(most, math.Float32bits(f)&^(1<<31))
		}
		exponent := max(int(most>>23), bits+1)
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
	pairs, each := make([]int16, n*panelN), panelN*n/f.sub
	scales, minima := make([]float32, each), make([]float32, each)
	for g := range groups {
		f.unpackGo((*byte)(unsafe.Add(unsafe.Pointer(w), g*size)), &pairs[0], &scales[0], &minima[0], blocks)
		var c [panelN]float32
		least := &minima[0]
		if !f.minima {
			least = nil
		}
		packedTileGo(x, 0, records, 0, &pairs[0], &scales[0], least, &c[0], 0, n/f.sub, f.sub/2)
		copy(unsafe.Slice(at(dst, 8*g), 8), c[:8])
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

// Codes and scales of row r of eight interleaved blocks.

func halfAt(w []byte) float32 { return dtype.FromF16(binary.LittleEndian.Uint16(w)) }

// nibbleAt is code i of eight in a word.
func nibbleAt(word []byte, i int) int16 { return int16(word[i%2*2+i/4] >> (i / 2 % 2 * 4) & 15) }

func codeQ4_0(w []byte, r, i int) int16 { return nibbleAt(w[16+i/8*32+4*r:], i%8) }
func codeQ4K(w []byte, r, i int) int16  { return nibbleAt(w[128+i/8*32+4*r:], i%8) }
func codeQ8_0(w []byte, r, i int) int16 {
	return int16(int8(w[16+i/4*32+4*r+i%2*2+i/2%2]))
}

func codeQ6K(w []byte, r, i int) int16 {
	sixteen := w[144+i/16*96:]
	upper := sixteen[64+4*r+i%2*2+i%8/4] >> (i%16/8*4 + i/2%2*2) & 3
	return nibbleAt(sixteen[i%16/8*32+4*r:], i%8) | int16(upper)<<4
}

func scalesFirst(w []byte, r, _ int) (scale, minimum float32) { return halfAt(w[2*r:]), 0 }

func scalesQ4K(w []byte, r, sub int) (scale, minimum float32) {
	lower, upper := w[32+8*sub+r], w[96+sub/2*8+r]>>(sub%2*4)
	return halfAt(w[2*r:]) * float32(lower&15|upper&3<<4), halfAt(w[16+2*r:]) * float32(lower>>4|upper>>2&3<<4)
}

func scalesQ6K(w []byte, r, sub int) (scale, minimum float32) {
	return halfAt(w[2*r:]) * float32(int8(w[16+8*sub+r])), 0
}
