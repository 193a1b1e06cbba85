package kernel

import "golang.org/x/sys/cpu"

func compressedPairs1AVX512(groups int, w compressedAt, a *float32, aStep int, c *float32, cStep int, add *float32, addStep int)
func compressedPairs2AVX512(groups int, w compressedAt, a *float32, aStep int, c *float32, cStep int, add *float32, addStep int)
func compressedPairs4AVX512(groups int, w compressedAt, a *float32, aStep int, c *float32, cStep int, add *float32, addStep int)
func compressedPairs8AVX512(groups int, w compressedAt, a *float32, aStep int, c *float32, cStep int, add *float32, addStep int)
func compressedFirst8AVX512(groups int, w compressedAt, a *float32, aStep int, c *float32, cStep int, add *float32, addStep int, words *float32)
func compressedSingles1AVX512(groups int, w compressedAt, a *float32, aStep int, c *float32, cStep int, add *float32, addStep int)
func compressedSingles2AVX512(groups int, w compressedAt, a *float32, aStep int, c *float32, cStep int, add *float32, addStep int)
func compressedSingles4AVX512(groups int, w compressedAt, a *float32, aStep int, c *float32, cStep int, add *float32, addStep int)
func compressedSingles8AVX512(groups int, w compressedAt, a *float32, aStep int, c *float32, cStep int, add *float32, addStep int)
func compressedSingles1AVX2(groups int, w compressedAt, a *float32, aStep int, c *float32, cStep int, add *float32, addStep int)
func compressedSingles2AVX2(groups int, w compressedAt, a *float32, aStep int, c *float32, cStep int, add *float32, addStep int)
func compressedWordsAVX2(dst *float32, step, half, groups int, w compressedAt)
func compressedNumbersAVX2(dst *float32, step, half, groups int, w compressedAt)
func compressedWordsAVX512(dst *float32, step, half, groups int, w compressedAt)
func compressedNumbersAVX512(dst *float32, step, half, groups int, w compressedAt)

// compressedAVX512 is the fast way of CPUs that have AVX-512 VBMI2 next to what the path needs.
func compressedAVX512() compressed {
	if !cpu.X86.HasAVX512VBMI2 {
		return compressedAVX2()
	}
	c := compressed{
		fast: true, most: 16, words: compressedWordsAVX512, numbers: compressedNumbersAVX512,
		singles: [compressedRows + 1]compressedFunc{1: compressedSingles1AVX512, 2: compressedSingles2AVX512, 4: compressedSingles4AVX512, 8: compressedSingles8AVX512},
	}
	if cpu.X86.HasAVX512BF16 {
		c.pairs = [compressedRows + 1]compressedFunc{1: compressedPairs1AVX512, 2: compressedPairs2AVX512, 4: compressedPairs4AVX512, 8: compressedPairs8AVX512}
		c.first = compressedFirst8AVX512
	}
	return c
}

// compressedAVX2 has 16 registers, which hold the sums of two rows. For more of them columns are decoded again, from the first-level cache:
// that takes half as long as words that are written and read.
func compressedAVX2() compressed {
	return compressed{
		fast: true, most: interleavedM, words: compressedWordsAVX2, numbers: compressedNumbersAVX2,
		singles: [compressedRows + 1]compressedFunc{1: compressedSingles1AVX2, 2: compressedSingles2AVX2},
	}
}
