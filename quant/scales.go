package quant

import (
	"encoding/binary"
	"math"
)

// Scales are the absmax of blocks, quantized again (double quantization): their mean is
// subtracted, and the rest are signed dynamic codes in groups of 256 with an absmax of
// their own.
type Scales struct {
	Codes  []byte
	Groups []byte // f32, one per group
	Offset float32
}

// NewScales quantizes the absmax of blocks.
func NewScales(absmax []float32) Scales {
	s := Scales{Codes: make([]byte, len(absmax)), Groups: make([]byte, 4*ceil(len(absmax), FourBitGroup))}
	s.encode(absmax, mean(absmax))
	return s
}

// mean is summed in f64, so that it is the same however the numbers were made.
func mean(list []float32) float32 {
	if len(list) == 0 {
		return 0
	}
	var sum float64
	for _, f := range list {
		sum += float64(f)
	}
	return float32(sum / float64(len(list)))
}

func (s *Scales) encode(absmax []float32, offset float32) {
	s.Offset = offset
	var scratch [FourBitGroup]float32
	for first := 0; first < len(absmax); first += FourBitGroup {
		rest := scratch[:min(FourBitGroup, len(absmax)-first)]
		for i := range rest {
			rest[i] = absmax[first+i] - offset
		}
		most := AbsMax(rest)
		putF32(s.Groups, first/FourBitGroup, most)
		Signed.Encode(s.Codes[first:], rest, most)
	}
}

// Absmax decodes the absmax of len(dst) blocks from the first-th on, with the map the
// codes were made with: that of Signed, or a file's own.
func (s Scales) Absmax(dst []float32, first int, values *[256]float32) {
	for i := range dst {
		b := first + i
		rest := float32(values[s.Codes[b]] * getF32(s.Groups, b/FourBitGroup)) // rounded, not fused
		dst[i] = rest + s.Offset
	}
}

// Append adds the scales as they are laid out in the storage of a tensor, after its
// codes.
func (s Scales) Append(b []byte) []byte {
	b = append(append(b, s.Codes...), s.Groups...)
	return binary.LittleEndian.AppendUint32(b, math.Float32bits(s.Offset))
}
