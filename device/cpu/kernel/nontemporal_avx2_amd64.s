#include "textflag.h"

// func nonTemporalAVX2(dst, src *float32, n int)
// Whole cache lines; without src zeros.
TEXT ·nonTemporalAVX2(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
	VXORPS Y0, Y0, Y0
	TESTQ SI, SI
	JEQ zeros
line:
	VMOVUPS (SI), Y0
	VMOVUPS 32(SI), Y1
	VMOVNTPS Y0, (DI)
	VMOVNTPS Y1, 32(DI)
	ADDQ $64, SI
	ADDQ $64, DI
	SUBQ $16, CX
	JNZ line
	VZEROUPPER
	RET
zeros:
	VMOVNTPS Y0, (DI)
	VMOVNTPS Y0, 32(DI)
	ADDQ $64, DI
	SUBQ $16, CX
	JNZ zeros
	VZEROUPPER
	RET
