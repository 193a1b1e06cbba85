package op

// State is a tensor that an optimizer stores per param between iterations, such as Adam's
// exp_avg: its name, as PyTorch calls it, and its type.
//
// A state of the param's own shape may be in f32, bf16, f16, or in the 8 bits of dyn8,
// udyn8 where it is never negative. A step is made in f32 from what the old state
// stands for, and the new one is rounded after it, in the same pass, so that no f32
// copy of a state exists.
//
//	f32, bf16     a number below the normal ones, which a CPU takes many times as
//	              long for, becomes zero of its sign before it is used for the step:
//	              without a gradient it would stay there for ever.
//	bf16          n elements of two bytes, rounded stochastically by Stream.RoundState:
//	              with the stream of Args.Key and of the state's number, and positions
//	              from Args.Row on. Rounded to the nearest, a mean whose decay of 0.999 is
//	              less than half a unit in its last place would never shrink.
//	f16           n elements of two bytes, rounded to the nearest, ties to even. A number
//	              that is not zero is not rounded to zero, but to ±2^-24, and a finite one
//	              not to infinity, but to ±65504: the roots of small squares are divided by.
//	dyn8, udyn8   first the scales, ceil(n/256) f32 at the start, then the n codes, a
//	              byte each, at byte 4·ceil(n/256): element i is code value · scale
//	              i/256. A number that is not zero is not coded as zero, unless its
//	              whole block is below the normal ones of f32. Where some state of a
//	              call is in 8 bits, an element whose gradient is infinite or not a
//	              number leaves its weight as it is, and all its states become 0: it
//	              would spoil its whole block.
//
// All zero bytes are zeros in every type: where states start.
type State struct {
	Name string `json:"name"`
	Type Type   `json:"type"`
}

// Bytes is the exact storage of a state.
func (s State) Bytes() int64 { return s.Type.Bytes() }
