package kernel

import "golang.org/x/sys/cpu"

// available lists the paths this processor can run, slowest first.
func available() []*routines {
	all := []*routines{portable()}
	if cpu.X86.HasAVX2 && cpu.X86.HasFMA {
		all = append(all, avx2())
	}
	if cpu.X86.HasAVX512F && cpu.X86.HasAVX512BW && cpu.X86.HasAVX512DQ && cpu.X86.HasAVX512VL {
		all = append(all, avx512())
	}
	return all
}

func avx512() *routines {
	r := portable()
	r.name, r.mr, r.nr = "avx512", 12, 32
	r.heights = []int{12, 8, 4, 2, 1}
	r.tileCols = [maxRows + 1]tileFunc{1: tileCols1AVX512, 2: tileCols2AVX512, 4: tileCols4AVX512, 8: tileCols8AVX512, 12: tileCols12AVX512}
	r.tileRows = [maxRows + 1]tileFunc{1: tileRows1AVX512, 2: tileRows2AVX512, 4: tileRows4AVX512, 8: tileRows8AVX512, 12: tileRows12AVX512}
	r.packCopy, r.packTranspose = packCopyAVX512, packStrips(16, 12, packTransposeAVX512)
	return r
}

func avx2() *routines {
	r := portable()
	r.name, r.mr, r.nr = "avx2", 6, 16
	r.heights = []int{6, 4, 2, 1}
	r.tileCols = [maxRows + 1]tileFunc{1: tileCols1AVX2, 2: tileCols2AVX2, 4: tileCols4AVX2, 6: tileCols6AVX2}
	r.tileRows = [maxRows + 1]tileFunc{1: tileRows1AVX2, 2: tileRows2AVX2, 4: tileRows4AVX2, 6: tileRows6AVX2}
	r.packCopy, r.packTranspose = packCopyAVX2, packStrips(8, 6, packTransposeAVX2)
	return r
}

// laneMask masks the columns of a partial AVX2 tile: n columns start at 16-n.
var laneMask = [32]int32{-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1}
