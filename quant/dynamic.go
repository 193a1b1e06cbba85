package quant

import (
	"math"
	"slices"

	"spillway/dtype"
)

// Dynamic is an 8-bit dynamic code: 256 values in [-1, 1] or [0, 1], seven decades of
// them, the larger the finer. Codes are in ascending order of value.
type Dynamic struct {
	Values  [256]float32
	zero    byte     // the code of 0
	encoder *encoder // by the midpoints between values
}

// Signed and Unsigned are the two fixed maps, as PyTorch computes them wherever its
// kernels have fused multiply-add. Little endian, their SHA-256 are e732639a65f497b4…
// and 305f002cc11278fb…. Elsewhere last bits differ, so files carry their map.
var (
	Signed   = newDynamic(true)
	Unsigned = newDynamic(false)
)

// Dyn8 and UDyn8 are the types of optimizer state in 8 bits: signed and unsigned dynamic codes.
var (
	Dyn8  = RegisterState(StateCodec{Name: "dyn8", Alias: "8bit", Title: "8 bits: dynamic codes, a scale per 256, as in bitsandbytes", Signed: Signed.state(), Unsigned: Unsigned.state()})
	UDyn8 = Of(Dyn8).Unsigned
)

func (d *Dynamic) state() StateCode { return StateCode{d.EncodeState, d.Decode} }

// DynamicOf is the code of Dyn8 or UDyn8, nil of other types.
func DynamicOf(t dtype.Type) *Dynamic {
	switch t {
	case Dyn8:
		return Signed
	case UDyn8:
		return Unsigned
	}
	return nil
}

// newDynamic makes, for each decade from 1e-6 to 1, the midpoints of equal parts of
// [0.1, 1], twice as many as in the decade below.
func newDynamic(signed bool) *Dynamic {
	values := []float32{0, 1}
	for decade := range 7 {
		parts := 1 << decade
		if !signed {
			parts *= 2
		}
		size := float32(math.Pow10(decade - 6))
		for k := range parts {
			v := size * ((linspace(k, parts) + linspace(k+1, parts)) / 2)
			values = append(values, v)
			if signed {
				values = append(values, -v)
			}
		}
	}
	slices.Sort(values)
	d := &Dynamic{Values: [256]float32(values), zero: byte(slices.Index(values, 0))}
	codes := make([]byte, len(values))
	for c := range codes {
		codes[c] = byte(c)
	}
	d.encoder = newEncoder(midpoints(values), codes)
	return d
}

// linspace is torch.linspace(0.1, 1, parts+1)[k]: counted from the nearer end, multiplied
// and added with one rounding.
func linspace(k, parts int) float32 {
	from, to := float64(float32(0.1)), 1.0
	step := float64((1 - float32(0.1)) / float32(parts))
	if k < (parts+1)/2 {
		return float32(math.FMA(step, float64(k), from))
	}
	return float32(math.FMA(-step, float64(parts-k), to))
}

func midpoints(values []float32) []float32 {
	mid := make([]float32, len(values)-1)
	for i := range mid {
		mid[i] = (values[i] + values[i+1]) / 2
	}
	return mid
}

// Encode encodes a block whose largest magnitude is absmax; dst has a byte per element.
// Halfway between two values the lower one is taken.
func (d *Dynamic) Encode(dst []byte, src []float32, absmax float32) {
	const none = 256 // no code is treated apart
	d.encodeScaled(dst[:len(src)], src, Reciprocal(absmax), none, 0)
}

// encodeScaled writes the codes of src·r. A number that is not zero but would get the code
// zero gets the next code above, or for a negative number the one that many below.
func (d *Dynamic) encodeScaled(dst []byte, src []float32, r float32, zero, below uint32) {
	if active.dynamic != nil {
		n := len(src) &^ (maxLanes - 1)
		active.dynamic(dst[:n], src[:n], r, d.encoder.cells, zero, below)
		dst, src = dst[n:], src[n:]
	}
	cells := d.encoder.cells // stays in a register
	for i, x := range src[:len(dst)] {
		dst[i] = find(cells, x*r)
	}
	for i, c := range dst {
		switch {
		case uint32(c) != zero:
		case src[i] > 0:
			dst[i]++
		case src[i] < 0:
			dst[i] -= byte(below)
		}
	}
}

// Decode is the inverse: the values of a block times its absmax.
func (d *Dynamic) Decode(dst []float32, codes []byte, absmax float32) {
	for i, c := range codes {
		dst[i] = d.Values[c] * absmax
	}
}

// EncodeState encodes a block of optimizer state and returns its absmax. It is Encode with
// two exceptions: a number that is not zero never gets the code of zero, and a block of
// subnormal numbers becomes zero, which decay alone would never reach.
func (d *Dynamic) EncodeState(dst []byte, src []float32) (absmax float32) {
	const leastNormal = 0x1p-126
	absmax = AbsMax(src)
	if absmax < leastNormal {
		for i := range src {
			dst[i] = d.zero
		}
		return 0
	}
	zero := uint32(d.zero)
	d.encodeScaled(dst[:len(src)], src, Reciprocal(absmax), zero, min(zero, 1))
	return absmax
}

// Cells is the table that Encode searches, for kernels on other devices.
func (d *Dynamic) Cells() *Cells { return d.encoder.cells }

// Zero is the code of 0.
func (d *Dynamic) Zero() byte { return d.zero }
