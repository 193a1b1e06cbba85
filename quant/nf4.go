package quant

// NF4 is the 4-bit type of QLoRA. Its values are at equal shares of a normal distribution,
// as weights are; its codes ascend.
var NF4 = Register(newFourBit([16]float32{
	-1, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
	-0.09105003625154495, 0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
	0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1,
}).codec("nf4", "4.1 bits: 16 values spaced as weights are, a scale per 64; the usual choice for qlora"))
