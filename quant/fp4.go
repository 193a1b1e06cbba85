package quant

// FP4 is a 4-bit float: a sign, two bits of exponent and one of fraction, divided by 12.
// It has two codes of zero; the one with the sign is that of small negative numbers.
var FP4 = Register(newFourBit([16]float32{
	0, 0.0625 / 12, 8.0 / 12, 1, 4.0 / 12, 6.0 / 12, 2.0 / 12, 3.0 / 12,
	0, -0.0625 / 12, -8.0 / 12, -1, -4.0 / 12, -6.0 / 12, -2.0 / 12, -3.0 / 12,
}).codec("fp4", "4.1 bits: 16 floats, a scale per 64"))
