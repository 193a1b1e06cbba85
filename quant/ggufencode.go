package quant

import (
	"encoding/binary"
	"math"
)

// Encoding of the GGUF types. The simple types have one scale, from the largest number of a
// block, as other programs compute it. The others search: of some scales near the
// one that just holds all numbers, the one with the least sum of squared errors is
// taken, after a least-squares fit to the codes it gives.

// roundAway rounds to the nearest integer, halves away from zero: math.Round of an f32, by instructions that
// most CPUs have.
func roundAway(f float32) float32 {
	y := float64(f) // has more digits than f, so that the sum is exact wherever it matters
	return float32(math.Trunc(y + math.Copysign(0.5, y)))
}

// furthest is the number of the largest magnitude, with its sign.
func furthest(src []float32) (most float32) {
	for _, x := range src {
		if abs32(x) > abs32(most) {
			most = x
		}
	}
	return most
}

func abs32(x float32) float32 { return math.Float32frombits(math.Float32bits(x) &^ (1 << 31)) }

// inverse is 1/x, and 0 of 0.
func inverse(x float32) float32 {
	if x == 0 {
		return 0
	}
	return 1 / x
}

// clampCode is a number as a code from 0 to most, 0 of NaN.
func clampCode(f float32, most int) int {
	switch {
	case !(f > 0):
		return 0
	case f >= float32(most): // may be more than an int holds
		return most
	}
	return int(f)
}

func encodeQ8_0(b []byte, src []float32) {
	d := AbsMax(src) / 127
	putHalf(b, d)
	for i, x := range src {
		b[2+i] = byte(int8(roundAway(x * inverse(d))))
	}
}

// putNibbles stores 32 codes, those of i and i+16 in one byte.
func putNibbles(codes []byte, code func(i int) int) {
	for i := range 16 {
		codes[i] = byte(code(i)&15 | code(i+16)&15<<4)
	}
}

func encodeQ4_0(b []byte, src []float32) {
	d := furthest(src) / -8
	putHalf(b, d)
	putNibbles(b[2:], func(i int) int { return clampCode(src[i]*inverse(d)+8.5, 15) })
}

func extremes(src []float32) (least, most float32) {
	least, most = src[0], src[0]
	for _, x := range src[1:] {
		least, most = min(least, x), max(most, x)
	}
	return least, most
}

func encodeQ4_1(b []byte, src []float32) {
	least, most := extremes(src)
	d := (most - least) / 15
	putHalf(b, d)
	putHalf(b[2:], least)
	putNibbles(b[4:], func(i int) int { return clampCode((src[i]-least)*inverse(d)+0.5, 15) })
}

// putFifths stores 32 codes of five bits.
func putFifths(high, codes []byte, code func(i int) int) {
	var word uint32
	for i := range 32 {
		word |= uint32(code(i)>>4&1) << i
	}
	binary.LittleEndian.PutUint32(high, word)
	putNibbles(codes, code)
}

func encodeQ5_0(b []byte, src []float32) {
	d := furthest(src) / -16
	putHalf(b, d)
	putFifths(b[2:], b[6:], func(i int) int { return clampCode(src[i]*inverse(d)+16.5, 31) })
}

func encodeQ5_1(b []byte, src []float32) {
	least, most := extremes(src)
	d := (most - least) / 31
	putHalf(b, d)
	putHalf(b[2:], least)
	putFifths(b[4:], b[8:], func(i int) int { return clampCode((src[i]-least)*inverse(d)+0.5, 31) })
}

// Blocks whose scale is searched for have up to mostFitted numbers, and up to mostSteps scales are tried.
const mostFitted, mostSteps = 32, 24

// fitting is a search for the scale of a block: its numbers, what does not depend on the scale, and what came out for
// each scale that is tried. Vectors have a scale in each lane.
type fitting struct {
	n, steps    int64
	above       [mostFitted]float32 // the numbers in f32, above the least
	x, weight   [mostFitted]float64
	w, wx       float64 // sums of weights, and of weights times numbers
	least, most float64 // codes
	inverse     [mostSteps]float32
	s, m, miss  [mostSteps]float64
	valid       [mostSteps]uint64 // all ones, or 0
}

// fitAffine finds scale and least, both at least 0, for numbers that become scale·q - least
// with q from 0 to most. Larger numbers weigh more.
func fitAffine(src []float32, most int) (scale, least float32) {
	lo, hi := extremes(src)
	lo = min(lo, 0)
	if hi <= lo {
		return 0, -lo
	}
	var mean float64
	for _, x := range src {
		mean += float64(x) * float64(x) / float64(len(src))
	}
	mean = math.Sqrt(mean)
	f := fitting{n: int64(len(src)), most: float64(most)}
	for i, x := range src {
		f.above[i], f.x[i] = x-lo, float64(x)
		f.weight[i] = mean + math.Abs(f.x[i])
		f.w, f.wx = f.w+f.weight[i], f.wx+f.weight[i]*f.x[i]
	}
	for step := -8; step <= 12; step++ {
		f.inverse[f.steps] = (float32(most) + 0.1*float32(step)) / (hi - lo)
		f.steps++
	}
	if active.fits {
		fitAffineVector(&f)
	} else {
		fitAffineGo(&f)
	}
	best := math.Inf(1)
	for k := range f.steps {
		if f.valid[k] != 0 && f.miss[k] < best {
			best, scale, least = f.miss[k], float32(f.s[k]), float32(-f.m[k])
		}
	}
	if math.IsInf(best, 1) {
		return (hi - lo) / float32(most), -lo
	}
	return scale, least
}

// fitAffineGo fits each scale to the codes it gives, and sums the squared errors of what comes out.
func fitAffineGo(f *fitting) {
	for k := range f.steps {
		var wq, wqq, wqx float64
		for i := range f.n {
			q := f.code(float64(f.above[i]*f.inverse[k]) + 0.5)
			t := f.weight[i] * q
			wq, wqq, wqx = wq+t, wqq+t*q, wqx+t*f.x[i]
		}
		det := f.w*wqq - wq*wq
		s, m := (f.w*wqx-f.wx*wq)/det, (wqq*f.wx-wq*wqx)/det
		if m > 0 { // a minimum cannot be above zero
			m, s = 0, wqx/wqq
		}
		f.valid[k] = 0
		if det > 0 && s > 0 {
			f.valid[k] = 1
		}
		var miss float64
		for i := range f.n {
			e := s*f.code(float64(float32((f.x[i]-m)/s))+0.5) + m - f.x[i]
			miss += f.weight[i] * e * e
		}
		f.s[k], f.m[k], f.miss[k] = s, m, miss
	}
}

// code cuts off what is behind the point, and holds the rest between the least and the most; of NaN it makes
// the least.
func (f *fitting) code(y float64) float64 {
	if !(y > f.least) {
		return f.least
	}
	return min(math.Trunc(y), f.most)
}

// fitSymmetric finds the scale of numbers that become scale·q with q from -most to most-1.
func fitSymmetric(src []float32, most int) (scale float32) {
	top := furthest(src)
	if top == 0 {
		return 0
	}
	f := fitting{n: int64(len(src)), least: float64(-most), most: float64(most - 1)}
	for i, x := range src {
		f.above[i], f.x[i] = x, float64(x)
		f.weight[i] = f.x[i] * f.x[i]
	}
	for step := -9; step <= 9; step++ {
		f.inverse[f.steps] = -(float32(most) + 0.1*float32(step)) / top
		f.steps++
	}
	if active.fits {
		fitSymmetricVector(&f)
	} else {
		fitSymmetricGo(&f)
	}
	best := math.Inf(-1)
	for k := range f.steps {
		if xq, qq := f.s[k], f.m[k]; qq > 0 && xq*xq/qq > best { // what the fit takes off the sum of squares
			best, scale = xq*xq/qq, float32(xq/qq)
		}
	}
	return scale
}

// fitSymmetricGo sums, for each scale, weights times codes times numbers as s, and weights times squares of codes
// as m.
func fitSymmetricGo(f *fitting) {
	for k := range f.steps {
		var xq, qq float64
		for i := range f.n {
			y := float64(f.above[i] * f.inverse[k])
			q := f.code(y + math.Copysign(0.5, y)) // halves away from zero
			t := f.weight[i] * q
			xq, qq = xq+t*f.x[i], qq+t*q
		}
		f.s[k], f.m[k] = xq, qq
	}
}

// affineK fits n blocks of a group: their scales and minima become integers up to most of two
// factors that the group shares.
func affineK(src []float32, n, codes, most int, put func(d, dmin float32) (float32, float32)) (s, m []int, d, dmin float32) {
	scales, mins := make([]float32, n), make([]float32, n)
	size := len(src) / n
	for j := range n {
		scales[j], mins[j] = fitAffine(src[j*size:][:size], codes)
	}
	topScale, topMin := AbsMax(scales), AbsMax(mins)
	d, dmin = put(topScale/float32(most), topMin/float32(most))
	s, m = make([]int, n), make([]int, n)
	for j := range n {
		s[j], m[j] = clampCode(roundAway(scales[j]*inverse(d)), most), clampCode(roundAway(mins[j]*inverse(dmin)), most)
	}
	return s, m, d, dmin
}

// affineCode is the code of x in a block of a group.
func affineCode(x, d, dmin float32, s, m, most int) int {
	scale, least := d*float32(s), dmin*float32(m)
	return clampCode(roundAway((x+least)*inverse(scale)), most)
}

func encodeQ2K(b []byte, src []float32) {
	s, m, d, dmin := affineK(src, 16, 3, 15, func(d, dmin float32) (float32, float32) { return putHalf(b[80:], d), putHalf(b[82:], dmin) })
	clear(b[:80])
	for j := range 16 {
		b[j] = byte(s[j] | m[j]<<4)
	}
	for i, x := range src {
		b[16+i>>7<<5+i&31] |= byte(affineCode(x, d, dmin, s[i/16], m[i/16], 3) << (i >> 5 & 3 << 1))
	}
}

// symmetricK fits n blocks of a group: their scales become integers from -most to most-1 of
// one factor.
func symmetricK(src []float32, n, codes, most int, put func(d float32) float32) (s []int, d float32) {
	scales := make([]float32, n)
	size := len(src) / n
	for j := range n {
		scales[j] = fitSymmetric(src[j*size:][:size], codes)
	}
	d = put(furthest(scales) / float32(-most))
	s = make([]int, n)
	for j := range n {
		s[j] = clampCode(roundAway(scales[j]*inverse(d))+float32(most), 2*most-1) - most
	}
	return s, d
}

// symmetricCode is the code of x, from 0 on, in a block of a group.
func symmetricCode(x, d float32, s, most int) int {
	return clampCode(roundAway(x*inverse(d*float32(s)))+float32(most), 2*most-1)
}

func encodeQ3K(b []byte, src []float32) {
	clear(b[:108])
	s, d := symmetricK(src, 16, 4, 32, func(d float32) float32 { return putHalf(b[108:], d) })
	for j := range 16 {
		v := s[j] + 32
		b[96+j&7] |= byte(v & 15 << (j >> 3 << 2))
		b[104+j&3] |= byte(v >> 4 << (j >> 2 << 1))
	}
	for i, x := range src {
		q := symmetricCode(x, d, s[i/16], 4)
		b[i&31] |= byte(q >> 2 << (i >> 5))
		b[32+i>>7<<5+i&31] |= byte(q & 3 << (i >> 5 & 3 << 1))
	}
}

// putPairsK stores eight pairs of 6-bit numbers in 12 bytes.
func putPairsK(b []byte, s, m []int) {
	for j := range 4 {
		b[j], b[j+4] = byte(s[j]|s[j+4]>>4<<6), byte(m[j]|m[j+4]>>4<<6)
		b[j+8] = byte(s[j+4]&15 | m[j+4]&15<<4)
	}
}

func encodeQ4K(b []byte, src []float32) {
	s, m, d, dmin := affineK(src, 8, 15, 63, func(d, dmin float32) (float32, float32) { return putHalf(b, d), putHalf(b[2:], dmin) })
	clear(b[16:])
	putPairsK(b[4:], s, m)
	for i, x := range src {
		b[16+i>>6<<5+i&31] |= byte(affineCode(x, d, dmin, s[i/32], m[i/32], 15) << (i >> 5 & 1 << 2))
	}
}

func encodeQ5K(b []byte, src []float32) {
	s, m, d, dmin := affineK(src, 8, 31, 63, func(d, dmin float32) (float32, float32) { return putHalf(b, d), putHalf(b[2:], dmin) })
	clear(b[16:])
	putPairsK(b[4:], s, m)
	for i, x := range src {
		q := affineCode(x, d, dmin, s[i/32], m[i/32], 31)
		b[16+i&31] |= byte(q >> 4 << (i >> 5))
		b[48+i>>6<<5+i&31] |= byte(q & 15 << (i >> 5 & 1 << 2))
	}
}

func encodeQ6K(b []byte, src []float32) {
	clear(b[:192])
	s, d := symmetricK(src, 16, 32, 128, func(d float32) float32 { return putHalf(b[208:], d) })
	for j := range 16 {
		b[192+j] = byte(int8(s[j]))
	}
	for i, x := range src {
		q := symmetricCode(x, d, s[i/16], 32)
		h, g, l := i>>7, i>>5&3, i&31
		b[64*h+32*(g&1)+l] |= byte(q & 15 << (g >> 1 << 2))
		b[128+32*h+l] |= byte(q >> 4 << (2 * g))
	}
}

// nearest finds the code of the value that is nearest.
func nearest(values *[16]float32, x float32) (code int) {
	for c, v := range values {
		if abs32(x-v) < abs32(x-values[code]) {
			code = c
		}
	}
	return code
}

// fitUneven finds the scale for the values of the iq4 types.
func fitUneven(src []float32) (scale float32) {
	top := furthest(src)
	if top == 0 {
		return 0
	}
	best := math.Inf(-1)
	for step := -7; step <= 7; step++ {
		inv := (unevenValues[0] + float32(step)) / top
		var xv, vv float64
		for _, x := range src {
			v := float64(unevenValues[nearest(&unevenValues, x*inv)])
			weight := float64(x) * float64(x)
			xv, vv = xv+weight*v*float64(x), vv+weight*v*v
		}
		if vv > 0 && xv*xv/vv > best {
			best, scale = xv*xv/vv, float32(xv/vv)
		}
	}
	return scale
}

func encodeIQ4NL(b []byte, src []float32) {
	d := putHalf(b, fitUneven(src))
	putNibbles(b[2:], func(i int) int { return nearest(&unevenValues, src[i]*inverse(d)) })
}

func encodeIQ4XS(b []byte, src []float32) {
	var scales [8]float32
	for k := range scales {
		scales[k] = fitUneven(src[32*k:][:32])
	}
	d := putHalf(b, furthest(scales[:])/-32)
	clear(b[2:8])
	var high uint16
	for k, scale := range scales {
		v := clampCode(roundAway(scale*inverse(d))+32, 63)
		high |= uint16(v>>4) << (2 * k)
		b[4+k>>1] |= byte(v & 15 << (k & 1 << 2))
		inv := inverse(d * float32(v-32))
		putNibbles(b[8+16*k:], func(i int) int { return nearest(&unevenValues, src[32*k+i]*inv) })
	}
	binary.LittleEndian.PutUint16(b[2:], high)
}

func encodeMXFP4(b []byte, src []float32) {
	e := 0
	if top := AbsMax(src); top > 0 {
		_, exponent := math.Frexp(float64(top)) // top is from 2^(exponent-1) to below 2^exponent
		e = min(max(exponent-1-2+127, 0), 254)
	}
	b[0] = byte(e)
	inv := float32(math.Ldexp(1, min(128-e, 127)))
	putNibbles(b[1:], func(i int) int { return nearest(&e2m1Values, src[i]*inv) })
}
