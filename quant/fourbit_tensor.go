package quant

import (
	"fmt"
	"io"
)

// View4 gives the codes and scales of a 4-bit tensor of n elements, in place. The storage
// must have its exact size.
func View4(n int, b []byte) (codes []byte, s Scales) {
	codes, b = b[:ceil(n, 2)], b[ceil(n, 2):]
	blocks, offset := ceil(n, FourBitBlock), len(b)-4
	return codes, Scales{b[:blocks], b[blocks:offset], getF32(b[offset:], 0)}
}

func (f *FourBit) encodeTensor(dst []byte, src []float32, _ int) error {
	codes, absmax := dst[:ceil(len(src), 2)], make([]float32, ceil(len(src), FourBitBlock))
	f.Encode(codes, absmax, src, FourBitBlock)
	NewScales(absmax).Append(codes) // in dst, behind the codes
	return nil
}

// decodeRange decodes elements from any one on. A block that begins before the first is
// decoded whole, and the rest of it is copied.
func (f *FourBit) decodeRange(dst []float32, storage []byte, n, _, first int) {
	codes, scales := View4(n, storage)
	var absmax [FourBitGroup]float32
	if in := first % FourBitBlock; in != 0 {
		var block [FourBitBlock]float32
		scales.Absmax(absmax[:1], first/FourBitBlock, &Signed.Values)
		f.decodeBlock(block[:min(FourBitBlock, n-(first-in))], codes[(first-in)/2:], absmax[0])
		count := copy(dst, block[in:])
		dst, first = dst[count:], first+count
	}
	for len(dst) > 0 {
		count := min(len(dst), len(absmax)*FourBitBlock)
		some := absmax[:ceil(count, FourBitBlock)]
		scales.Absmax(some, first/FourBitBlock, &Signed.Values)
		f.Decode(dst[:count], codes[first/2:], some, FourBitBlock)
		dst, first = dst[count:], first+count
	}
}

func (f *FourBit) stream(rows, cols int64, from ReadFunc) io.Reader {
	codes := NewCodes(f, FourBitBlock, rows*cols, from)
	return io.MultiReader(codes, &tailReader{tail: func() ([]byte, error) { return NewScales(codes.Absmax).Append(nil), nil }})
}

// Codes reads as the packed codes of a tensor, made while it is read.
type Codes struct {
	// Absmax of the blocks; all are known after io.EOF.
	Absmax []float32
	*parallelReader
}

// NewCodes encodes n numbers in blocks of a given even size that divides 65536.
func NewCodes(code *FourBit, block int, n int64, from ReadFunc) *Codes {
	c := &Codes{Absmax: make([]float32, (n+int64(block)-1)/int64(block))}
	halved := func(count int64) int64 { return (count + 1) / 2 }
	c.parallelReader = encodeParts(n, partElements, from, halved, func(first int64, b *buffer) error {
		absmax := c.Absmax[first/int64(block):][:ceil(len(b.numbers), block)]
		code.Encode(b.bytes, absmax, b.numbers, block)
		if firstNonFinite(absmax) < 0 {
			return nil
		}
		bad := firstNonFinite(b.numbers)
		return fmt.Errorf("element %d is %v, which has no 4-bit code", first+int64(bad), b.numbers[bad])
	})
	return c
}
