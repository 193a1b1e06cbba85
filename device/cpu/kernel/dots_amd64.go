package kernel

import "golang.org/x/sys/cpu"

func dotsBF16AVX2(rows, k int, a *float32, b *uint16, bStep int, sums *float32, ahead int)

// bf16Dots is nil where this CPU has no fast way.
var bf16Dots = func() dotsFunc {
	if cpu.X86.HasAVX2 && cpu.X86.HasFMA {
		return dotsBF16AVX2
	}
	return nil
}()
