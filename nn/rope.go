package nn

import (
	"math"

	"spillway/graph"
	"spillway/op"
)

// Rope are rotary positions.
type Rope struct {
	Freq []float32 // radians per position of each pair of a head's elements
	// Scale multiplies what is rotated; 0 counts as 1.
	Scale float64
}

// NewRope has the frequencies of the original for an even number of dimensions: theta^(-2i/dims), rounded to float32 where transformers rounds.
func NewRope(theta float64, dims int64) *Rope {
	if dims < 2 || dims%2 != 0 {
		return &Rope{} // which Forward refuses
	}
	freq := make([]float32, dims/2)
	for i := range freq {
		exponent := float32(2*i) / float32(dims)
		freq[i] = 1 / float32(math.Pow(theta, float64(exponent)))
	}
	return &Rope{Freq: freq}
}

// Forward rotates the heads of x [B T H·D].
func (r *Rope) Forward(b *graph.Builder, x graph.Value, heads int64) graph.Value {
	if len(r.Freq) == 0 {
		b.Fail("%s: %d frequencies for %d heads of %v; NewRope takes an even number of dimensions, 2 or more", op.Rope, len(r.Freq), heads, b.TypeOf(x))
		return 0
	}
	for i, f := range r.Freq {
		if f := float64(f); math.IsNaN(f) || math.IsInf(f, 0) {
			b.Fail("%s: frequency %d of %d is %v; theta must be above 0", op.Rope, i, len(r.Freq), f)
			return 0
		}
	}
	return b.Rope(x, Positions(b), b.Floats("rope", r.Freq), heads, r.Scale)
}

// RopeForm is how published models pair the elements of a head that are rotated together.
type RopeForm string

// The forms.
const (
	HalfRope        RopeForm = "half"        // element i with i + half: Llama, GPT-NeoX
	InterleavedRope RopeForm = "interleaved" // neighbours: GPT-J, the original
)

// known is false, and the mistake kept, for a form that is none of them.
func (form RopeForm) known(b *graph.Builder) bool {
	if form != HalfRope && form != InterleavedRope {
		b.Fail("%s: the form %q; it is %q or %q", op.Rope, form, HalfRope, InterleavedRope)
	}
	return b.Err() == nil
}

// RotatePartly rotates the first dims elements of each head of x [B T H·D] in a form, and leaves the others.
func RotatePartly(b *graph.Builder, r *Rope, form RopeForm, x graph.Value, heads, dims int64) graph.Value {
	s := b.TypeOf(x).Shape
	if !form.known(b) {
		return 0
	}
	if len(s) != 3 || heads < 1 || s[2]%heads != 0 || dims < 2 || dims%2 != 0 || dims > s[2]/heads || int64(len(r.Freq)) != dims/2 {
		b.Fail("rotating %d elements of each of %d heads of %v by %d frequencies; want an even number of a head's and half as many frequencies", dims, heads, b.TypeOf(x), len(r.Freq))
		return 0
	}
	width := s[2] / heads
	whole := b.Reshape(x, s[0], s[1], heads, width)
	parts := []graph.Value{whole}
	if dims < width {
		parts = b.Split(whole, dims, width-dims)
	}
	turned := parts[0]
	if form == InterleavedRope { // neighbours to halves, and back
		turned = b.Permute(b.Reshape(turned, s[0], s[1], heads, dims/2, 2), 0, 1, 2, 4, 3)
	}
	turned = r.Forward(b, b.Reshape(turned, s[0], s[1], heads*dims), heads)
	if form == InterleavedRope {
		turned = b.Permute(b.Reshape(turned, s[0], s[1], heads, 2, dims/2), 0, 1, 2, 4, 3)
	}
	if turned = b.Reshape(turned, s[0], s[1], heads, dims); dims < width {
		turned = b.Concat(turned, parts[1])
	}
	return b.Reshape(turned, s[0], s[1], s[2])
}

// RopeSection is some of the pairs of a head, which turn by positions of their own.
type RopeSection struct {
	Positions graph.Value // [B T] i32
	Freq      []float32
}

// RotateSections rotates x [B T H·D] by several positions at once: by time, rows and columns of images, as Qwen2-VL (halves) and
// FLUX (interleaved) do it. The sections' frequencies, one behind the other, are those of all pairs of a head.
func RotateSections(b *graph.Builder, form RopeForm, x graph.Value, heads int64, sections ...RopeSection) graph.Value {
	s, half := b.TypeOf(x).Shape, int64(0)
	sizes := make([]int64, len(sections))
	for i, part := range sections {
		sizes[i] = int64(len(part.Freq))
		half += sizes[i]
	}
	if !form.known(b) {
		return 0
	}
	if len(s) != 3 || heads < 1 || half < 1 || s[2] != 2*half*heads {
		b.Fail("rotating %d heads of %v by %d frequencies; want half as many as a head has elements", heads, b.TypeOf(x), half)
		return 0
	}
	pairs := b.Reshape(x, s[0], s[1], heads, 2, half)
	if form == InterleavedRope { // neighbours to halves, and back
		pairs = b.Transpose(b.Reshape(x, s[0], s[1], heads, half, 2), 3, 4)
	}
	parts := b.SplitAxis(pairs, 4, sizes...)
	for i, part := range sections {
		turned := b.Rope(b.Reshape(parts[i], s[0], s[1], heads*2*sizes[i]), part.Positions, b.Floats("rope", part.Freq), heads, 0)
		parts[i] = b.Reshape(turned, s[0], s[1], heads, 2, sizes[i])
	}
	if pairs = b.Concat(parts...); form == InterleavedRope {
		pairs = b.Transpose(pairs, 3, 4)
	}
	return b.Reshape(pairs, s...)
}
