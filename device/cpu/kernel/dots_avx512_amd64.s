#include "textflag.h"

// dots of bf16 weights as those with eight lanes, with sixteen. Sums of even and of odd groups of sixteen are apart,
// so that a row of A has the same bits alone and among four.

// Sixteen elements of a row of the weight as f32.
#define WIDEN16(o) \
	VPMOVZXWD o(R9), Z8; \
	VPSLLD $16, Z8, Z8

#define ONE16(o, sum) \
	WIDEN16(o); \
	VFMADD231PS (o*2)(R10), Z8, sum

#define FOUR16(o, a, b, c, d) \
	WIDEN16(o); \
	VFMADD231PS (o*2)(R10), Z8, a; \
	VFMADD231PS (o*2)(R12), Z8, b; \
	VFMADD231PS (o*2)(R13), Z8, c; \
	VFMADD231PS (o*2)(R14), Z8, d

// The sum of sixteen parts and sixteen more.
#define TOTAL16(Z, Y, X, more, to) \
	VADDPS more, Z, Z; \
	VEXTRACTF64X4 $1, Z, Y9; \
	VADDPS Y9, Y, Y; \
	VEXTRACTF128 $1, Y, X9; \
	VADDPS X9, X, X; \
	VPERMILPS $0x0e, X, X9; \
	VADDPS X9, X, X; \
	VPERMILPS $0x01, X, X9; \
	VADDSS X9, X, X; \
	VMOVSS X, to

// func dotsBF16AVX512(rows, k int, a *float32, b *uint16, bStep int, sums *float32, ahead int)
TEXT ·dotsBF16AVX512(SB), NOSPLIT, $0-56
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
line:
	PREFETCHT0 (R9)(R11*1)
	ONE16(0, Z0)
	ONE16(32, Z1)
	ADDQ $64, R9
	ADDQ $128, R10
	SUBQ $32, CX
	JNZ line
	TOTAL16(Z0, Y0, X0, Z1, (AX))
	ADDQ $4, AX
	ADDQ R8, DI
	SUBQ $1, DX
	JNZ row
	VZEROUPPER
	RET

// func dotsBF16FourAVX512(rows, k int, a *float32, aStep int, b *uint16, bStep int, sums *float32, sumStep int, ahead int)
TEXT ·dotsBF16FourAVX512(SB), NOSPLIT, $0-72
	MOVQ rows+0(FP), DX
	MOVQ k+8(FP), BX
	MOVQ a+16(FP), SI
	MOVQ aStep+24(FP), R15
	MOVQ b+32(FP), DI
	MOVQ bStep+40(FP), R8
	MOVQ sums+48(FP), AX
	MOVQ ahead+64(FP), R11
	SHLQ $1, R8
	SHLQ $2, R15
row:
	MOVQ DI, R9
	MOVQ SI, R10
	LEAQ (R10)(R15*1), R12
	LEAQ (R12)(R15*1), R13
	LEAQ (R13)(R15*1), R14
	MOVQ BX, CX
	VXORPS Y0, Y0, Y0
	VXORPS Y1, Y1, Y1
	VXORPS Y2, Y2, Y2
	VXORPS Y3, Y3, Y3
	VXORPS Y4, Y4, Y4
	VXORPS Y5, Y5, Y5
	VXORPS Y6, Y6, Y6
	VXORPS Y7, Y7, Y7
line:
	PREFETCHT0 (R9)(R11*1)
	FOUR16(0, Z0, Z2, Z4, Z6)
	FOUR16(32, Z1, Z3, Z5, Z7)
	ADDQ $64, R9
	ADDQ $128, R10
	ADDQ $128, R12
	ADDQ $128, R13
	ADDQ $128, R14
	SUBQ $32, CX
	JNZ line
	MOVQ sumStep+56(FP), CX
	SHLQ $2, CX
	MOVQ AX, R10
	TOTAL16(Z0, Y0, X0, Z1, (R10))
	ADDQ CX, R10
	TOTAL16(Z2, Y2, X2, Z3, (R10))
	ADDQ CX, R10
	TOTAL16(Z4, Y4, X4, Z5, (R10))
	ADDQ CX, R10
	TOTAL16(Z6, Y6, X6, Z7, (R10))
	ADDQ $4, AX
	ADDQ R8, DI
	SUBQ $1, DX
	JNZ row
	VZEROUPPER
	RET
