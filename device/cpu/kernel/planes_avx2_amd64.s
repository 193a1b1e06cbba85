#include "textflag.h"

// Convolutions of planes for AVX2, see planes.go: up to 12 places of 8 channels stay in registers while
// the places of a window and their channels run. Row i lives in Yi, the current weights in Y12.
//
//	SI, R9, R10, R11  rows 0, 3, 6, 9     R8  bytes from row to row
//	BX  weights                          DI  what is written
//	DX  offsets of the places            AX  places left
//	R12 the first row                    CX  channels left

#define FMA(at, acc) VBROADCASTSS at, Y13; VFMADD231PS Y12, Y13, acc
#define ROWS1(o) FMA(o(SI), Y0)
#define ROWS2(o) ROWS1(o); FMA(o(SI)(R8*1), Y1)
#define ROWS3(o) ROWS2(o); FMA(o(SI)(R8*2), Y2)
#define ROWS4(o) ROWS3(o); FMA(o(R9), Y3)
#define ROWS5(o) ROWS4(o); FMA(o(R9)(R8*1), Y4)
#define ROWS6(o) ROWS5(o); FMA(o(R9)(R8*2), Y5)
#define ROWS7(o) ROWS6(o); FMA(o(R10), Y6)
#define ROWS8(o) ROWS7(o); FMA(o(R10)(R8*1), Y7)
#define ROWS9(o) ROWS8(o); FMA(o(R10)(R8*2), Y8)
#define ROWS10(o) ROWS9(o); FMA(o(R11), Y9)
#define ROWS11(o) ROWS10(o); FMA(o(R11)(R8*1), Y10)
#define ROWS12(o) ROWS11(o); FMA(o(R11)(R8*2), Y11)
#define ZERO1 VXORPS Y0, Y0, Y0
#define ZERO2 ZERO1; VXORPS Y1, Y1, Y1
#define ZERO3 ZERO2; VXORPS Y2, Y2, Y2
#define ZERO4 ZERO3; VXORPS Y3, Y3, Y3
#define ZERO5 ZERO4; VXORPS Y4, Y4, Y4
#define ZERO6 ZERO5; VXORPS Y5, Y5, Y5
#define ZERO7 ZERO6; VXORPS Y6, Y6, Y6
#define ZERO8 ZERO7; VXORPS Y7, Y7, Y7
#define ZERO9 ZERO8; VXORPS Y8, Y8, Y8
#define ZERO10 ZERO9; VXORPS Y9, Y9, Y9
#define ZERO11 ZERO10; VXORPS Y10, Y10, Y10
#define ZERO12 ZERO11; VXORPS Y11, Y11, Y11
#define OUT1 VADDPS Y12, Y0, Y0; VMOVUPS Y0, (DI); ADDQ R8, DI
#define OUT2 OUT1; VADDPS Y12, Y1, Y1; VMOVUPS Y1, (DI); ADDQ R8, DI
#define OUT3 OUT2; VADDPS Y12, Y2, Y2; VMOVUPS Y2, (DI); ADDQ R8, DI
#define OUT4 OUT3; VADDPS Y12, Y3, Y3; VMOVUPS Y3, (DI); ADDQ R8, DI
#define OUT5 OUT4; VADDPS Y12, Y4, Y4; VMOVUPS Y4, (DI); ADDQ R8, DI
#define OUT6 OUT5; VADDPS Y12, Y5, Y5; VMOVUPS Y5, (DI); ADDQ R8, DI
#define OUT7 OUT6; VADDPS Y12, Y6, Y6; VMOVUPS Y6, (DI); ADDQ R8, DI
#define OUT8 OUT7; VADDPS Y12, Y7, Y7; VMOVUPS Y7, (DI); ADDQ R8, DI
#define OUT9 OUT8; VADDPS Y12, Y8, Y8; VMOVUPS Y8, (DI); ADDQ R8, DI
#define OUT10 OUT9; VADDPS Y12, Y9, Y9; VMOVUPS Y9, (DI); ADDQ R8, DI
#define OUT11 OUT10; VADDPS Y12, Y10, Y10; VMOVUPS Y10, (DI); ADDQ R8, DI
#define OUT12 OUT11; VADDPS Y12, Y11, Y11; VMOVUPS Y11, (DI); ADDQ R8, DI

#define FOUR(ROWS) \
	VMOVUPS 0(BX), Y12; ROWS(0); VMOVUPS 32(BX), Y12; ROWS(4); VMOVUPS 64(BX), Y12; ROWS(8); VMOVUPS 96(BX), Y12; ROWS(12); \
	ADDQ $16, SI; ADDQ $16, R9; ADDQ $16, R10; ADDQ $16, R11; ADDQ $128, BX
#define ONE(ROWS) \
	VMOVUPS 0(BX), Y12; ROWS(0); \
	ADDQ $4, SI; ADDQ $4, R9; ADDQ $4, R10; ADDQ $4, R11; ADDQ $32, BX

#define PLANE(ZERO, ROWS, OUT) \
	MOVQ taps+0(FP), AX; MOVQ offsets+8(FP), DX; \
	MOVQ x+24(FP), R12; MOVQ xStep+32(FP), R8; SHLQ $2, R8; \
	MOVQ w+40(FP), BX; MOVQ c+48(FP), DI; \
	ZERO; \
tap: \
	MOVQ (DX), SI; ADDQ $8, DX; LEAQ (R12)(SI*4), SI; \
	LEAQ (R8)(R8*2), R11; LEAQ (SI)(R11*1), R9; LEAQ (R9)(R11*1), R10; ADDQ R10, R11; \
	MOVQ each+16(FP), CX; \
	SUBQ $4, CX; JLT rest; \
four: \
	FOUR(ROWS); SUBQ $4, CX; JGE four; \
rest: \
	ADDQ $4, CX; JZ next; \
one: \
	ONE(ROWS); DECQ CX; JNZ one; \
next: \
	DECQ AX; JNZ tap; \
	MOVQ cStep+56(FP), R8; SHLQ $2, R8; \
	VXORPS Y12, Y12, Y12; \
	MOVQ add+64(FP), DX; TESTQ DX, DX; JZ out; \
	VMOVUPS (DX), Y12; \
out: \
	OUT; \
	VZEROUPPER; \
	RET

TEXT ·plane1AVX2(SB), NOSPLIT, $0-72
	PLANE(ZERO1, ROWS1, OUT1)

TEXT ·plane2AVX2(SB), NOSPLIT, $0-72
	PLANE(ZERO2, ROWS2, OUT2)

TEXT ·plane3AVX2(SB), NOSPLIT, $0-72
	PLANE(ZERO3, ROWS3, OUT3)

TEXT ·plane4AVX2(SB), NOSPLIT, $0-72
	PLANE(ZERO4, ROWS4, OUT4)

TEXT ·plane5AVX2(SB), NOSPLIT, $0-72
	PLANE(ZERO5, ROWS5, OUT5)

TEXT ·plane6AVX2(SB), NOSPLIT, $0-72
	PLANE(ZERO6, ROWS6, OUT6)

TEXT ·plane7AVX2(SB), NOSPLIT, $0-72
	PLANE(ZERO7, ROWS7, OUT7)

TEXT ·plane8AVX2(SB), NOSPLIT, $0-72
	PLANE(ZERO8, ROWS8, OUT8)

TEXT ·plane9AVX2(SB), NOSPLIT, $0-72
	PLANE(ZERO9, ROWS9, OUT9)

TEXT ·plane10AVX2(SB), NOSPLIT, $0-72
	PLANE(ZERO10, ROWS10, OUT10)

TEXT ·plane11AVX2(SB), NOSPLIT, $0-72
	PLANE(ZERO11, ROWS11, OUT11)

TEXT ·plane12AVX2(SB), NOSPLIT, $0-72
	PLANE(ZERO12, ROWS12, OUT12)

// Row i of dy and column j of x: Y(3i+j).
#define DY(i, c0, c1, c2) VBROADCASTSS (4*i)(DI), Y15; VFMADD231PS Y12, Y15, c0; VFMADD231PS Y13, Y15, c1; VFMADD231PS Y14, Y15, c2
#define SUM(o, acc) VADDPS o(DX), acc, acc; VMOVUPS acc, o(DX)

// func planeWeightsAVX2(lines, n int, x0, x1, x2 *float32, xStep, xLine int, dy *float32, dyStep, dyLine int, sums *float32)
TEXT ·planeWeightsAVX2(SB), NOSPLIT, $0-88
	MOVQ lines+0(FP), BX
	MOVQ x0+16(FP), SI
	MOVQ x1+24(FP), R9
	MOVQ x2+32(FP), R10
	MOVQ xStep+40(FP), R8
	SHLQ $2, R8
	MOVQ xLine+48(FP), R12
	SHLQ $2, R12
	MOVQ dy+56(FP), R13
	MOVQ dyStep+64(FP), R11
	SHLQ $2, R11
	MOVQ sums+80(FP), DX
	ZERO12
line:
	MOVQ n+8(FP), CX
	MOVQ R13, DI
	XORQ AX, AX
place:
	VMOVUPS (SI)(AX*1), Y12
	VMOVUPS (R9)(AX*1), Y13
	VMOVUPS (R10)(AX*1), Y14
	DY(0, Y0, Y1, Y2)
	DY(1, Y3, Y4, Y5)
	DY(2, Y6, Y7, Y8)
	DY(3, Y9, Y10, Y11)
	ADDQ R8, AX
	ADDQ R11, DI
	DECQ CX
	JNZ place
	ADDQ R12, SI
	ADDQ R12, R9
	ADDQ R12, R10
	MOVQ dyLine+72(FP), CX
	LEAQ (R13)(CX*4), R13
	DECQ BX
	JNZ line
	SUM(0, Y0)
	SUM(32, Y1)
	SUM(64, Y2)
	SUM(96, Y3)
	SUM(128, Y4)
	SUM(160, Y5)
	SUM(192, Y6)
	SUM(224, Y7)
	SUM(256, Y8)
	SUM(288, Y9)
	SUM(320, Y10)
	SUM(352, Y11)
	VZEROUPPER
	RET

// func planeFillAVX2(to *float32, step, toStep int, from *float32, fromStep, groups, n int)
// The place that comes some places later is fetched meanwhile.
TEXT ·planeFillAVX2(SB), NOSPLIT, $0-56
	MOVQ to+0(FP), DI
	MOVQ step+8(FP), R8
	SHLQ $2, R8
	MOVQ toStep+16(FP), R9
	SHLQ $2, R9
	MOVQ from+24(FP), SI
	MOVQ fromStep+32(FP), R10
	SHLQ $2, R10
	MOVQ n+48(FP), DX
fill:
	MOVQ groups+40(FP), CX
	MOVQ SI, AX
	MOVQ DI, BX
	SUBQ $2, CX
	JLT last
pair:
	VMOVUPS (AX), Y0
	VMOVUPS 32(AX), Y1
	PREFETCHT0 (AX)(R10*4)
	VMOVUPS Y0, (BX)
	VMOVUPS Y1, (BX)(R8*1)
	ADDQ $64, AX
	LEAQ (BX)(R8*2), BX
	SUBQ $2, CX
	JGE pair
last:
	ADDQ $2, CX
	JZ next
	VMOVUPS (AX), Y0
	VMOVUPS Y0, (BX)
next:
	ADDQ R10, SI
	ADDQ R9, DI
	DECQ DX
	JNZ fill
	VZEROUPPER
	RET
