package kernel

import "math"

// constants are the numbers the vector functions read, each named in math.h. The
// polynomials are minimax fits of relative error on the interval given.
type constants struct {
	one, two, half, minusInf, signless, sign float32
	// bias is the exponent bias as an integer: 2^n is (n+bias)<<23.
	bias int32

	// exp: below low the result is 0, above high infinite. ln2 is ln2Hi + ln2Lo, the
	// first with few enough bits that multiples are exact.
	expLow, expHigh, log2e, ln2Hi, ln2Lo float32
	// e^r = 1 + r + r²·(e0 + e1·r + ...) for |r| up to ln(2)/2.
	e0, e1, e2, e3, e4 float32

	// tanh x = x + x³·(t0 + t1·x² + ...) for |x| below tanhSmall.
	tanhSmall, t0, t1, t2, t3, t4 float32

	// erf x = x + x·(r0 + r1·x² + ...) for |x| below one, and for larger ones
	// 1 - e^(l0 + l1·|x| + ...), up to erfHigh where erf is 1.
	r0, r1, r2, r3, r4, r5, r6              float32
	erfHigh, l0, l1, l2, l3, l4, l5, l6, l7 float32

	// gelu: 1/√2, 1/√(2π), -1/2; its tanh form is x·sigmoid(g1·x + g3·x³), and
	// g3x3 is three times g3.
	sqrtHalf, density, minusHalf, g1, g3, g3x3 float32
}

// c is read by the assembly.
var c = constants{
	one: 1, two: 2, half: 0.5, minusInf: float32(math.Inf(-1)), signless: math.Float32frombits(0x7fffffff), sign: math.Float32frombits(1 << 31), bias: 127,
	expLow: -104, expHigh: 89, log2e: math.Log2E, ln2Hi: 0.693359375, ln2Lo: -2.12194440e-4,
	e0: 0.49999994, e1: 0.16666515, e2: 0.041668456, e3: 0.008369419, e4: 0.0013813145,
	tanhSmall: 0.625, t0: -0.3333328, t1: 0.13331442, t2: -0.053739715, t3: 0.020639088, t4: -0.0057049873,
	r0: 0.12837917, r1: -0.37612626, r2: 0.112835854, r3: -0.026853813, r4: 0.0051883287, r5: -0.00080102007, r6: 7.8538826e-05,
	erfHigh: 4, l0: 0.00018803679, l1: -1.1295784, l2: -0.6332199, l3: -0.10841855, l4: 0.02520824, l5: -0.004204556, l6: 0.00044133523, l7: -2.1686757e-05,
	sqrtHalf: math.Sqrt2 / 2, density: 0.3989422804014327, minusHalf: -0.5,
	g1: 1.5957691216057308, g3: 0.07135481282553454, g3x3: 0.2140644384766036,
}

// turnConstants are the numbers that Angles reads: π as two numbers, and the terms of the series of sin x/x and cos x.
type turnConstants struct {
	perPi, piHi, piLo, one, half       float64
	s1, s2, s3, s4, s5, s6, s7, s8     float64
	c1, c2, c3, c4, c5, c6, c7, c8, c9 float64
}

// turns is read by the assembly.
var turns = turnConstants{
	perPi: 1 / math.Pi, piHi: math.Pi, piLo: 1.2246467991473532e-16, one: 1, half: 0.5,
	s1: -1 / 6., s2: 1 / 120., s3: -1 / 5040., s4: 1 / 362880., s5: -1 / 39916800., s6: 1 / 6227020800., s7: -1 / 1307674368000., s8: 1 / 355687428096000.,
	c1: -1 / 2., c2: 1 / 24., c3: -1 / 720., c4: 1 / 40320., c5: -1 / 3628800., c6: 1 / 479001600., c7: -1 / 87178291200., c8: 1 / 20922789888000., c9: -1 / 6402373705728000.,
}
