package quant

import (
	"cmp"
	"math"
	"slices"

	"spillway/dtype"
)

// FourBit is a 4-bit code: sixteen values in [-1, 1].
type FourBit struct {
	Values [16]float32 // by code
	// pairs are the two values of a byte.
	pairs   [256][2]float32
	encoder *encoder
	search  *search
}

func newFourBit(values [16]float32) *FourBit {
	f := &FourBit{Values: values}
	codes := []byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}
	slices.SortFunc(codes, func(a, b byte) int {
		return cmp.Or(cmp.Compare(values[a], values[b]), cmp.Compare(b, a))
	})
	ascending := make([]float32, len(values))
	for i, c := range codes {
		ascending[i] = values[c]
	}
	bounds := midpoints(ascending)
	if zero := slices.Index(bounds, 0); zero >= 0 { // between two codes of zero
		bounds[zero] = math.Nextafter32(0, -1)
	}
	f.encoder, f.search = newEncoder(bounds, codes), newSearch(bounds, codes)
	for b := range f.pairs {
		f.pairs[b] = [2]float32{values[b>>4], values[b&15]}
	}
	return f
}

// FourBitOf is the 4-bit code of a type, nil where the type is not of this family.
func FourBitOf(t dtype.Type) *FourBit {
	if c := Of(t); c != nil {
		return c.fourBit
	}
	return nil
}

// codec is the block format of bitsandbytes with this code; see the package comment.
func (f *FourBit) codec(name, title string) Codec {
	return Codec{Name: name, Title: title, Block: FourBitBlock, Bytes: fourBitBytes, Encode: f.encodeTensor, Decode: f.decodeRange, Stream: f.stream, fourBit: f}
}

// Sizes of the 4-bit block format: a scale byte per block, and an fp32 scale per group of
// blocks, plus one fp32 offset for the whole tensor.
const (
	FourBitBlock = 64
	FourBitGroup = 256
)

func fourBitBytes(n int64) int64 {
	blocks := (n + FourBitBlock - 1) / FourBitBlock
	return (n+1)/2 + blocks + 4*((blocks+FourBitGroup-1)/FourBitGroup) + 4
}

// Encode encodes elements in blocks of a given even size, two to a byte, and writes the
// largest magnitude of each block. An odd end is filled with 0.
func (f *FourBit) Encode(codes []byte, absmax, src []float32, block int) {
	if block == FourBitBlock && active.fourBit != nil {
		blocks := len(src) / block
		whole := blocks * block
		active.fourBit(codes[:whole/2], absmax[:blocks], src[:whole], f.search)
		codes, absmax, src = codes[whole/2:], absmax[blocks:], src[whole:]
	}
	for b := range ceil(len(src), block) {
		from, to := b*block, min((b+1)*block, len(src))
		absmax[b] = AbsMax(src[from:to])
		r := Reciprocal(absmax[b])
		f.encoder.findPairs(codes[from/2:to/2], src[from:to], r)
		if to%2 == 1 {
			codes[to/2] = f.encoder.find(src[to-1]*r)<<4 | f.encoder.find(0)
		}
	}
}

// Decode writes the elements of blocks of an even size: the value of each code times
// the absmax of its block.
func (f *FourBit) Decode(dst []float32, codes []byte, absmax []float32, block int) {
	for b := range ceil(len(dst), block) {
		from, to := b*block, min((b+1)*block, len(dst))
		f.decodeBlock(dst[from:to], codes[from/2:], absmax[b])
	}
}

func (f *FourBit) decodeBlock(dst []float32, codes []byte, absmax float32) {
	for i := range len(dst) / 2 {
		p := &f.pairs[codes[i]]
		dst[2*i], dst[2*i+1] = p[0]*absmax, p[1]*absmax
	}
	if n := len(dst); n%2 == 1 {
		dst[n-1] = f.pairs[codes[n/2]][0] * absmax
	}
}
