package kernel

import (
	"golang.org/x/sys/cpu"

	"spillway/dtype"
)

func dotsBF16AVX2(k int, a *float32, b *uint16, bStep int, sums *float32)
func dotsF16AVX2(k int, a *float32, b *uint16, bStep int, sums *float32)

// dotsOf is the kernel of dots of weights in a type; nil for none.
func dotsOf(t dtype.Type) dotsFunc {
	switch {
	case !cpu.X86.HasAVX2 || !cpu.X86.HasFMA:
		return nil
	case t == dtype.BF16:
		return dotsBF16AVX2
	case t == dtype.F16 && cpu.X86.HasFMA:
		return dotsF16AVX2
	}
	return nil
}
