#include "textflag.h"

// A tile multiplies rows of the input by 16 outputs, unpacked: pairs at BX, scales at DX, minima
// or nothing at R13. Integer sums of row r are Y(2r) and Y(2r+1).
#define ROW_PAIR(x, a, b) \
	VPBROADCASTD x, Y14; \
	VPMADDWD Y12, Y14, Y15; VPADDD Y15, a, a; \
	VPMADDWD Y13, Y14, Y14; VPADDD Y14, b, b

// Pair o of the rows, and eight of them.
#define PAIR1(o) ROW_PAIR((4*o)(SI), Y0, Y1)
#define PAIR2(o) PAIR1(o); ROW_PAIR((4*o)(SI)(R8*1), Y2, Y3)
#define PAIR4(o) PAIR2(o); ROW_PAIR((4*o)(SI)(R8*2), Y4, Y5); ROW_PAIR((4*o)(R12), Y6, Y7)
#define PAIR6(o) PAIR4(o); ROW_PAIR((4*o)(R12)(R8*1), Y8, Y9); ROW_PAIR((4*o)(R12)(R8*2), Y10, Y11)
#define ONE(PAIR, o) VMOVDQU (64*o)(BX), Y12; VMOVDQU (64*o+32)(BX), Y13; PAIR(o)
#define EIGHT(PAIR) ONE(PAIR, 0); ONE(PAIR, 1); ONE(PAIR, 2); ONE(PAIR, 3); ONE(PAIR, 4); ONE(PAIR, 5); ONE(PAIR, 6); ONE(PAIR, 7)

#define FIRST_ROW(r, a, b) VPBROADCASTD r, a; VMOVDQA a, b
#define FIRST1 FIRST_ROW(4(R9), Y0, Y1)
#define FIRST2 FIRST1; FIRST_ROW(4(R9)(R10*1), Y2, Y3)
#define FIRST4 FIRST2; FIRST_ROW(4(R9)(R10*2), Y4, Y5); FIRST_ROW(4(R11), Y6, Y7)
#define FIRST6 FIRST4; FIRST_ROW(4(R11)(R10*1), Y8, Y9); FIRST_ROW(4(R11)(R10*2), Y10, Y11)

// C += sums times both scales. AX walks over the rows of C, R15 bytes apart.
#define SCALE_ROW(r, a, b) \
	VBROADCASTSS r, Y14; \
	VCVTDQ2PS a, a; VMULPS Y12, Y14, Y15; VFMADD213PS (AX), Y15, a; \
	VCVTDQ2PS b, b; VMULPS Y13, Y14, Y15; VFMADD213PS 32(AX), Y15, b; \
	VMOVUPS a, (AX); VMOVUPS b, 32(AX); ADDQ R15, AX
#define SCALE1 SCALE_ROW((R9), Y0, Y1)
#define SCALE2 SCALE1; SCALE_ROW((R9)(R10*1), Y2, Y3)
#define SCALE4 SCALE2; SCALE_ROW((R9)(R10*2), Y4, Y5); SCALE_ROW((R11), Y6, Y7)
#define SCALE6 SCALE4; SCALE_ROW((R11)(R10*1), Y8, Y9); SCALE_ROW((R11)(R10*2), Y10, Y11)

#define MINIMA_ROW(r, a, b) \
	VBROADCASTSS r, Y14; \
	VFMADD231PS Y12, Y14, a; VFMADD231PS Y13, Y14, b; \
	VMOVUPS a, (AX); VMOVUPS b, 32(AX); ADDQ R15, AX
#define MINIMA1 MINIMA_ROW(8(R9), Y0, Y1)
#define MINIMA2 MINIMA1; MINIMA_ROW(8(R9)(R10*1), Y2, Y3)
#define MINIMA4 MINIMA2; MINIMA_ROW(8(R9)(R10*2), Y4, Y5); MINIMA_ROW(8(R11), Y6, Y7)
#define MINIMA6 MINIMA4; MINIMA_ROW(8(R11)(R10*1), Y8, Y9); MINIMA_ROW(8(R11)(R10*2), Y10, Y11)

#define TILE(PAIR, FIRST, SCALE, MINIMA) \
	MOVQ x+0(FP), SI; MOVQ xStep+8(FP), R8; LEAQ (SI)(R8*2), R12; ADDQ R8, R12; \
	MOVQ records+16(FP), R9; MOVQ recordStep+24(FP), R10; LEAQ (R9)(R10*2), R11; ADDQ R10, R11; \
	MOVQ pairs+32(FP), BX; MOVQ scales+40(FP), DX; MOVQ minima+48(FP), R13; \
	MOVQ c+56(FP), DI; MOVQ cStep+64(FP), R15; \
sub: \
	FIRST; \
	MOVQ length+80(FP), CX; \
eight: \
	EIGHT(PAIR); \
	ADDQ $512, BX; ADDQ $32, SI; ADDQ $32, R12; \
	SUBQ $8, CX; \
	JNZ eight; \
	VMOVUPS (DX), Y12; VMOVUPS 32(DX), Y13; \
	MOVQ DI, AX; \
	SCALE; \
	TESTQ R13, R13; \
	JZ next; \
	VMOVUPS (R13), Y12; VMOVUPS 32(R13), Y13; \
	MOVQ DI, AX; \
	MINIMA; \
	ADDQ $64, R13; \
next: \
	ADDQ $64, DX; ADDQ $16, R9; ADDQ $16, R11; \
	DECQ subs+72(FP); \
	JNZ sub; \
	VZEROUPPER; \
	RET

// func packedTile1AVX2(x *int16, xStep int, records *record, recordStep int, pairs *int16, scales, minima *float32, c *float32, cStep, subs, length int)
TEXT ·packedTile1AVX2(SB), NOSPLIT, $0-88
	TILE(PAIR1, FIRST1, SCALE1, MINIMA1)

// func packedTile2AVX2(x *int16, xStep int, records *record, recordStep int, pairs *int16, scales, minima *float32, c *float32, cStep, subs, length int)
TEXT ·packedTile2AVX2(SB), NOSPLIT, $0-88
	TILE(PAIR2, FIRST2, SCALE2, MINIMA2)

// func packedTile4AVX2(x *int16, xStep int, records *record, recordStep int, pairs *int16, scales, minima *float32, c *float32, cStep, subs, length int)
TEXT ·packedTile4AVX2(SB), NOSPLIT, $0-88
	TILE(PAIR4, FIRST4, SCALE4, MINIMA4)

// func packedTile6AVX2(x *int16, xStep int, records *record, recordStep int, pairs *int16, scales, minima *float32, c *float32, cStep, subs, length int)
TEXT ·packedTile6AVX2(SB), NOSPLIT, $0-88
	TILE(PAIR6, FIRST6, SCALE6, MINIMA6)
