#include "textflag.h"

// Sixteen elements of a row of the weight at b, times those of the vector in Y8 and Y9.
#define BF16(b, o, s, t) \
	VPMOVZXWD o(b), Y10; VPMOVZXWD (o+16)(b), Y11; \
	VPSLLD $16, Y10, Y10; VPSLLD $16, Y11, Y11; \
	VFMADD231PS Y8, Y10, s; VFMADD231PS Y9, Y11, t
#define F16(b, o, s, t) \
	VCVTPH2PS o(b), Y10; VCVTPH2PS (o+16)(b), Y11; \
	VFMADD231PS Y8, Y10, s; VFMADD231PS Y9, Y11, t

// Sixteen elements of four rows.
#define TURN(ROW, o) \
	VMOVUPS (o*2)(SI), Y8; VMOVUPS (o*2+32)(SI), Y9; \
	ROW(DI, o, Y0, Y1); ROW(R9, o, Y2, Y3); ROW(R10, o, Y4, Y5); ROW(R11, o, Y6, Y7)

#define DOTS(ROW) \
	MOVQ k+0(FP), CX; \
	MOVQ a+8(FP), SI; \
	MOVQ b+16(FP), DI; \
	MOVQ bStep+24(FP), R8; \
	SHLQ $1, R8; \
	LEAQ (DI)(R8*1), R9; \
	LEAQ (DI)(R8*2), R10; \
	LEAQ (R9)(R8*2), R11; \
	VXORPS Y0, Y0, Y0; VXORPS Y1, Y1, Y1; VXORPS Y2, Y2, Y2; VXORPS Y3, Y3, Y3; \
	VXORPS Y4, Y4, Y4; VXORPS Y5, Y5, Y5; VXORPS Y6, Y6, Y6; VXORPS Y7, Y7, Y7; \
line: \
	PREFETCHT0 2048(DI); PREFETCHT0 2048(R9); PREFETCHT0 2048(R10); PREFETCHT0 2048(R11); \
	TURN(ROW, 0); \
	TURN(ROW, 32); \
	ADDQ $128, SI; \
	ADDQ $64, DI; ADDQ $64, R9; ADDQ $64, R10; ADDQ $64, R11; \
	SUBQ $32, CX; \
	JNZ line; \
	VADDPS Y1, Y0, Y0; VADDPS Y3, Y2, Y2; VADDPS Y5, Y4, Y4; VADDPS Y7, Y6, Y6; \
	MOVQ sums+32(FP), AX; \
	VMOVUPS Y0, (AX); VMOVUPS Y2, 32(AX); VMOVUPS Y4, 64(AX); VMOVUPS Y6, 96(AX); \
	VZEROUPPER; \
	RET

// func dotsBF16AVX2(k int, a *float32, b *uint16, bStep int, sums *float32)
TEXT ·dotsBF16AVX2(SB), NOSPLIT, $0-40
	DOTS(BF16)

// func dotsF16AVX2(k int, a *float32, b *uint16, bStep int, sums *float32)
TEXT ·dotsF16AVX2(SB), NOSPLIT, $0-40
	DOTS(F16)
