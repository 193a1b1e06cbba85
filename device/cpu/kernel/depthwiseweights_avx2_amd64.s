#include "textflag.h"

// Gradients of weights of depthwise convolutions for AVX2, see depthwise.go: three places of a window, tap bytes apart, from each of up to four pointers on.
//
//	SI, R9, R10, R11  the first of three    R8  bytes from one of three to the next
//	DI  dy                                 R12 bytes to its next place, R13 to the next window
//	BX  bytes to what the next line needs   CX  places left
//	DX  sums                               AX  vectors left

#define THREE(at, c0, c1, c2) VFMADD231PS (at), Y12, c0; VFMADD231PS (at)(R8*1), Y12, c1; VFMADD231PS (at)(R8*2), Y12, c2; ADDQ R13, at
#define TRIPLES1 THREE(SI, Y0, Y1, Y2)
#define TRIPLES2 TRIPLES1; THREE(R9, Y3, Y4, Y5)
#define TRIPLES3 TRIPLES2; THREE(R10, Y6, Y7, Y8)
#define TRIPLES4 TRIPLES3; THREE(R11, Y9, Y10, Y11)
#define BEGIN3(i, c0, c1, c2) VXORPS c0, c0, c0; VXORPS c1, c1, c1; VXORPS c2, c2, c2
#define BEGIN1 BEGIN3(0, Y0, Y1, Y2)
#define BEGIN2 BEGIN1; BEGIN3(1, Y3, Y4, Y5)
#define BEGIN_3 BEGIN2; BEGIN3(2, Y6, Y7, Y8)
#define BEGIN4 BEGIN_3; BEGIN3(3, Y9, Y10, Y11)
#define SUM1(c) VADDPS (DI), c, c; VMOVUPS c, (DI); ADDQ CX, DI
#define SUMS1 SUM1(Y0); SUM1(Y1); SUM1(Y2)
#define SUMS2 SUMS1; SUM1(Y3); SUM1(Y4); SUM1(Y5)
#define SUMS3 SUMS2; SUM1(Y6); SUM1(Y7); SUM1(Y8)
#define SUMS4 SUMS3; SUM1(Y9); SUM1(Y10); SUM1(Y11)

#define WEIGHTS(BEGIN, TRIPLES, SUMS) \
	MOVQ tap+48(FP), R8; SHLQ $2, R8; MOVQ step+56(FP), R13; SHLQ $2, R13; \
	MOVQ dyStep+72(FP), R12; SHLQ $2, R12; \
	MOVQ sums+80(FP), DX; MOVQ vectors+96(FP), AX; \
vector: \
	MOVQ x0+8(FP), SI; MOVQ x1+16(FP), R9; MOVQ x2+24(FP), R10; MOVQ x3+32(FP), R11; \
	MOVQ dy+64(FP), DI; MOVQ n+0(FP), CX; MOVQ next+40(FP), BX; SHLQ $2, BX; \
	BEGIN; \
place: \
	VMOVUPS (DI), Y12; PREFETCHT0 (DI)(BX*1); ADDQ R12, DI; \
	PREFETCHT0 (SI)(BX*1); \
	TRIPLES; \
	DECQ CX; JNZ place; \
	MOVQ DX, DI; MOVQ sumStep+88(FP), CX; SHLQ $2, CX; \
	SUMS; \
	ADDQ $32, DX; ADDQ $32, x0+8(FP); ADDQ $32, x1+16(FP); ADDQ $32, x2+24(FP); ADDQ $32, x3+32(FP); ADDQ $32, dy+64(FP); \
	DECQ AX; JNZ vector; \
	VZEROUPPER; \
	RET

TEXT ·depthwiseWeights1AVX2(SB), NOSPLIT, $0-104
	WEIGHTS(BEGIN1, TRIPLES1, SUMS1)

TEXT ·depthwiseWeights2AVX2(SB), NOSPLIT, $0-104
	WEIGHTS(BEGIN2, TRIPLES2, SUMS2)

TEXT ·depthwiseWeights3AVX2(SB), NOSPLIT, $0-104
	WEIGHTS(BEGIN_3, TRIPLES3, SUMS3)

TEXT ·depthwiseWeights4AVX2(SB), NOSPLIT, $0-104
	WEIGHTS(BEGIN4, TRIPLES4, SUMS4)
