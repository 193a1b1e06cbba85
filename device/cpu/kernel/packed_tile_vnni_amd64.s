#include "textflag.h"

// A tile multiplies rows of the input by 16 outputs, unpacked: pairs at BX, scales at DX, minima
// or nothing at DI. Integer sums of row r are Zr, those of outputs Z(12+r).

// A pair of a row is multiplied and added by one instruction. Rows are R8 bytes apart, from SI, R11, R12 and R13 on.
#define PAIR(o, x, sums) VPDPWSSD.BCST (4*o)x, Z24, sums
#define PAIR1(o) PAIR(o, (SI), Z0)
#define PAIR2(o) PAIR1(o); PAIR(o, (SI)(R8*1), Z1)
#define PAIR4(o) PAIR2(o); PAIR(o, (SI)(R8*2), Z2); PAIR(o, (R11), Z3)
#define PAIR8(o) PAIR4(o); PAIR(o, (R11)(R8*1), Z4); PAIR(o, (R11)(R8*2), Z5); PAIR(o, (R12), Z6); PAIR(o, (R12)(R8*1), Z7)
#define PAIR12(o) PAIR8(o); PAIR(o, (R12)(R8*2), Z8); PAIR(o, (R13), Z9); PAIR(o, (R13)(R8*1), Z10); PAIR(o, (R13)(R8*2), Z11)
#define ONE(PAIRS, o) VMOVDQU64 (64*o)(BX), Z24; PAIRS(o)
#define EIGHT(PAIRS) ONE(PAIRS, 0); ONE(PAIRS, 1); ONE(PAIRS, 2); ONE(PAIRS, 3); ONE(PAIRS, 4); ONE(PAIRS, 5); ONE(PAIRS, 6); ONE(PAIRS, 7)

// DO(record, sums, outputs) of the rows, whose records are R10 bytes apart. AX walks over them, three at a time; R15 is
// three times R10.
#define ROWS1(DO) DO((R9), Z0, Z12)
#define ROWS2(DO) ROWS1(DO); DO((R9)(R10*1), Z1, Z13)
#define ROWS4(DO) ROWS2(DO); DO((R9)(R10*2), Z2, Z14); LEAQ (R9)(R15*1), AX; DO((AX), Z3, Z15)
#define ROWS8(DO) ROWS4(DO); DO((AX)(R10*1), Z4, Z16); DO((AX)(R10*2), Z5, Z17); ADDQ R15, AX; DO((AX), Z6, Z18); DO((AX)(R10*1), Z7, Z19)
#define ROWS12(DO) ROWS8(DO); DO((AX)(R10*2), Z8, Z20); ADDQ R15, AX; DO((AX), Z9, Z21); DO((AX)(R10*1), Z10, Z22); DO((AX)(R10*2), Z11, Z23)

#define FIRST(r, sums, c) VPBROADCASTD 4 r, sums
// Outputs += sums times both scales, and then minima times the sums of inputs.
#define SCALE(r, sums, c) VCVTDQ2PS sums, sums; VMULPS.BCST r, Z25, Z26; VFMADD231PS Z26, sums, c
#define LEAST(r, sums, c) VFMADD231PS.BCST 8 r, Z25, c

// Outputs are loaded and stored, CX bytes from row to row.
#define LOAD(r, sums, c) VMOVUPS (R14), c; ADDQ CX, R14
#define STORE(r, sums, c) VMOVUPS c, (R14); ADDQ CX, R14

#define TILE(PAIRS, ROWS) \
	MOVQ x+0(FP), SI; MOVQ xStep+8(FP), R8; LEAQ (R8)(R8*2), AX; \
	LEAQ (SI)(AX*1), R11; LEAQ (SI)(AX*2), R12; LEAQ (R11)(AX*2), R13; \
	MOVQ records+16(FP), R9; MOVQ recordStep+24(FP), R10; LEAQ (R10)(R10*2), R15; \
	MOVQ pairs+32(FP), BX; MOVQ scales+40(FP), DX; MOVQ minima+48(FP), DI; \
	MOVQ c+56(FP), R14; MOVQ cStep+64(FP), CX; \
	ROWS(LOAD); \
sub: \
	ROWS(FIRST); \
	MOVQ length+80(FP), CX; \
eight: \
	EIGHT(PAIRS); \
	ADDQ $512, BX; ADDQ $32, SI; ADDQ $32, R11; ADDQ $32, R12; ADDQ $32, R13; \
	SUBQ $8, CX; \
	JNZ eight; \
	VMOVUPS (DX), Z25; \
	ROWS(SCALE); \
	TESTQ DI, DI; \
	JZ next; \
	VMOVUPS (DI), Z25; \
	ROWS(LEAST); \
	ADDQ $64, DI; \
next: \
	ADDQ $64, DX; ADDQ $16, R9; \
	DECQ subs+72(FP); \
	JNZ sub; \
	MOVQ c+56(FP), R14; MOVQ cStep+64(FP), CX; \
	ROWS(STORE); \
	VZEROUPPER; \
	RET

// func packedTile1VNNI(x *int16, xStep int, records *record, recordStep int, pairs *int16, scales, minima *float32, c *float32, cStep, subs, length int)
TEXT ·packedTile1VNNI(SB), NOSPLIT, $0-88
	TILE(PAIR1, ROWS1)

// func packedTile2VNNI(x *int16, xStep int, records *record, recordStep int, pairs *int16, scales, minima *float32, c *float32, cStep, subs, length int)
TEXT ·packedTile2VNNI(SB), NOSPLIT, $0-88
	TILE(PAIR2, ROWS2)

// func packedTile4VNNI(x *int16, xStep int, records *record, recordStep int, pairs *int16, scales, minima *float32, c *float32, cStep, subs, length int)
TEXT ·packedTile4VNNI(SB), NOSPLIT, $0-88
	TILE(PAIR4, ROWS4)

// func packedTile8VNNI(x *int16, xStep int, records *record, recordStep int, pairs *int16, scales, minima *float32, c *float32, cStep, subs, length int)
TEXT ·packedTile8VNNI(SB), NOSPLIT, $0-88
	TILE(PAIR8, ROWS8)

// func packedTile12VNNI(x *int16, xStep int, records *record, recordStep int, pairs *int16, scales, minima *float32, c *float32, cStep, subs, length int)
TEXT ·packedTile12VNNI(SB), NOSPLIT, $0-88
	TILE(PAIR12, ROWS12)

