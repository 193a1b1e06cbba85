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

// Dyn8 and UDyn8 are the block types of optimizer state: signed and unsigned dynamic
// codes, an f32 scale for every 256.
var (
	Dyn8  = Register(Signed.codec("dyn8"))
	UDyn8 = Register(Unsigned.codec("udyn8"))
)

// DynamicBlock is how many elements of a Dyn8 or UDyn8 tensor share an f32 scale.
const DynamicBlock = 256

// codec lays a tensor out as the scales of its blocks and behind them the codes.
func (d *Dynamic) codec(name string) Codec {
	return Codec{Name: name, State: true, Block: DynamicBlock, Encode: d.encodeTensor, Decode: d.decodeRange, dynamic: d,
		Bytes: func(n int64) int64 { return 4*((n+DynamicBlock-1)/DynamicBlock) + n }}
}

// DynamicOf is the code of Dyn8 or UDyn8, nil of other types.
func DynamicOf(t dtype.Type) *Dynamic {
	if c := Of(t); c != nil {
		return c.dynamic
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
	d.encoder.findAll(dst, src, r)
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

// View8 cuts the storage of a Dyn8 or UDyn8 tensor into its parts, in place.
func View8(n int, b []byte) (absmax, codes []byte) {
	at := 4 * ceil(n, DynamicBlock)
	return b[:at], b[at : at+n]
}

func (d *Dynamic) encodeTensor(dst []byte, src []float32, _ int) error {
	scales, codes := View8(len(src), dst)
	for b := range ceil(len(src), DynamicBlock) {
		from, to := b*DynamicBlock, min((b+1)*DynamicBlock, len(src))
		putF32(scales, b, d.EncodeState(codes[from:to], src[from:to]))
	}
	return nil
}

func (d *Dynamic) decodeRange(dst []float32, storage []byte, n, _, first int) {
	scales, codes := View8(n, storage)
	for len(dst) > 0 {
		b := first / DynamicBlock
		count := min(len(dst), (b+1)*DynamicBlock-first)
		d.Decode(dst[:count], codes[first:first+count], getF32(scales, b))
		dst, first = dst[count:], first+count
	}
}
