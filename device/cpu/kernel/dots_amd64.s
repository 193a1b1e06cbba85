#include "textflag.h"

// Eight elements of a row of the weight, times those of the vector.
#define EIGHT(o, sum) \
	VPMOVZXWD o(R9), Y8; \
	VPSLLD $16, Y8, Y8; \
	VFMADD231PS (o*2)(R10), Y8, sum

// func dotsBF16AVX2(rows, k int, a *float32, b *uint16, bStep int, sums *float32, ahead int)
TEXT ·dotsBF16AVX2(SB), NOSPLIT, $0-56
	MOVQ rows+0(FP), DX
	MOVQ k+8(FP), BX
	MOVQ a+16(FP), SI
	MOVQ b+24(FP), DI
	MOVQ bStep+32(FP), R8
	MOVQ sums+40(FP), AX
	MOVQ ahead+48(FP), R11
	SHLQ $1, R8
row:
	MOVQ DI, R9
	MOVQ SI, R10
	MOVQ BX, CX
	VXORPS Y0, Y0, Y0
	VXORPS Y1, Y1, Y1
	VXORPS Y2, Y2, Y2
	VXORPS Y3, Y3, Y3
line:
	PREFETCHT0 (R9)(R11*1)
	EIGHT(0, Y0)
	EIGHT(16, Y1)
	EIGHT(32, Y2)
	EIGHT(48, Y3)
	ADDQ $64, R9
	ADDQ $128, R10
	SUBQ $32, CX
	JNZ line
	VADDPS Y1, Y0, Y0
	VADDPS Y3, Y2, Y2
	VADDPS Y2, Y0, Y0
	VEXTRACTF128 $1, Y0, X1
	VADDPS X1, X0, X0
	VPERMILPS $0x0e, X0, X1
	VADDPS X1, X0, X0
	VPERMILPS $0x01, X0, X1
	VADDSS X1, X0, X0
	VMOVSS X0, (AX)
	ADDQ $4, AX
	ADDQ R8, DI
	SUBQ $1, DX
	JNZ row
	VZEROUPPER
	RET
