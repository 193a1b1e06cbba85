package kernel

import (
	"math"

	"spillway/op"
)

// Updates of optimizers give the same bits on every path and on GPUs, those of the plain
// steps in package optim: float32(x·y) is rounded by itself, dtype.FMA once for both
// operations, roots and quotients to nearest. Only the payload of a NaN is left open.

// Optimizer is the update of an optimizer with the numbers of one iteration.
type Optimizer interface {
	// Scalars names the numbers of an iteration, in the order in which Set takes them.
	Scalars() []string
	// Set takes these numbers, what gradients are multiplied by, and of each state whether
	// denormal numbers in it become zero, see flush.
	Set(s op.Scalars, clip float32, flush [2]bool)
	// Update changes weights, and as many states as the optimizer has, in place.
	Update(w, g []float32, states [2][]float32)
}

// flush gives x, or zero of its sign where x has none of the bits given. unless gives those
// bits: the exponent's, so that denormal numbers become zero, or all, so that nothing does.
//
// Without a gradient a state decays to denormal numbers but never to zero: 0.9 times 4·2^-149
// rounds back to 4·2^-149. A CPU takes many times as long for such numbers, so they become
// zero before anything else is computed from them.
func flush(x float32, unless uint32) float32 {
	if bits := math.Float32bits(x); bits&unless == 0 {
		return math.Float32frombits(bits & (1 << 31))
	}
	return x
}

// unless gives the bits for flush.
func unless(flush bool) uint32 {
	if flush {
		return 0xff << 23
	}
	return math.MaxUint32
}
