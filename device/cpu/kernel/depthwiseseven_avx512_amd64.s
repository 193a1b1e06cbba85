#include "textflag.h"

// Depthwise convolutions with windows of 7 places along a line for AVX-512, see Seven in depthwiseseven.go: 8, 7 or 4 places of y stay
// in registers while the lines of their windows run, and a place of x is loaded once for up to seven of them.
//
//	SI  the line of x, at the first column    R8  bytes from line to line    R14 the first line of this vector of channels
//	R15 bytes from column to column, R13, R12, R11, R10, BX and AX 3, 5, 7, 9, 11 and 13 times as many
//	R9  weights of the line                   CX  lines left                 DI  y
//	DX  a bit for each column that lies inside                               left  vectors left
//
// Place p of y lives in Zp, the weights of column x of a window in Z(8+x).

#define COLUMN0(line) (line)
#define COLUMN1(line) (line)(R15*1)
#define COLUMN2(line) (line)(R15*2)
#define COLUMN3(line) (line)(R13*1)
#define COLUMN4(line) (line)(R15*4)
#define COLUMN5(line) (line)(R12*1)
#define COLUMN6(line) (line)(R13*2)
#define COLUMN7(line) (line)(R11*1)
#define COLUMN8(line) (line)(R15*8)
#define COLUMN9(line) (line)(R10*1)
#define COLUMN10(line) (line)(R12*2)
#define COLUMN11(line) (line)(BX*1)
#define COLUMN12(line) (line)(R13*4)
#define COLUMN13(line) (line)(AX*1)

// A column of x, where it does not lie outside. Masks of loads would take the units that multiply.
#define GET(at, bit, outside, x) TESTL $(1<<bit), DX; JEQ outside; VMOVUPS at, x
#define MEET(x, w, y) VFMADD231PS w, x, y

#define LINE4 \
	GET(COLUMN0(SI), 0, outside0, Z16); MEET(Z16, Z8, Z0); \
outside0: \
	GET(COLUMN1(SI), 1, outside1, Z17); MEET(Z17, Z9, Z0); MEET(Z17, Z8, Z1); \
outside1: \
	GET(COLUMN2(SI), 2, outside2, Z18); MEET(Z18, Z10, Z0); MEET(Z18, Z9, Z1); MEET(Z18, Z8, Z2); \
outside2: \
	GET(COLUMN3(SI), 3, outside3, Z19); MEET(Z19, Z11, Z0); MEET(Z19, Z10, Z1); MEET(Z19, Z9, Z2); MEET(Z19, Z8, Z3); \
outside3: \
	GET(COLUMN4(SI), 4, outside4, Z20); MEET(Z20, Z12, Z0); MEET(Z20, Z11, Z1); MEET(Z20, Z10, Z2); MEET(Z20, Z9, Z3); \
outside4: \
	GET(COLUMN5(SI), 5, outside5, Z21); MEET(Z21, Z13, Z0); MEET(Z21, Z12, Z1); MEET(Z21, Z11, Z2); MEET(Z21, Z10, Z3); \
outside5: \
	GET(COLUMN6(SI), 6, outside6, Z22); MEET(Z22, Z14, Z0); MEET(Z22, Z13, Z1); MEET(Z22, Z12, Z2); MEET(Z22, Z11, Z3); \
outside6: \
	GET(COLUMN7(SI), 7, outside7, Z23); MEET(Z23, Z14, Z1); MEET(Z23, Z13, Z2); MEET(Z23, Z12, Z3); \
outside7: \
	GET(COLUMN8(SI), 8, outside8, Z16); MEET(Z16, Z14, Z2); MEET(Z16, Z13, Z3); \
outside8: \
	GET(COLUMN9(SI), 9, outside9, Z17); MEET(Z17, Z14, Z3); \
outside9:

#define LINE7 \
	GET(COLUMN0(SI), 0, outside0, Z16); MEET(Z16, Z8, Z0); \
outside0: \
	GET(COLUMN1(SI), 1, outside1, Z17); MEET(Z17, Z9, Z0); MEET(Z17, Z8, Z1); \
outside1: \
	GET(COLUMN2(SI), 2, outside2, Z18); MEET(Z18, Z10, Z0); MEET(Z18, Z9, Z1); MEET(Z18, Z8, Z2); \
outside2: \
	GET(COLUMN3(SI), 3, outside3, Z19); MEET(Z19, Z11, Z0); MEET(Z19, Z10, Z1); MEET(Z19, Z9, Z2); MEET(Z19, Z8, Z3); \
outside3: \
	GET(COLUMN4(SI), 4, outside4, Z20); MEET(Z20, Z12, Z0); MEET(Z20, Z11, Z1); MEET(Z20, Z10, Z2); MEET(Z20, Z9, Z3); MEET(Z20, Z8, Z4); \
outside4: \
	GET(COLUMN5(SI), 5, outside5, Z21); MEET(Z21, Z13, Z0); MEET(Z21, Z12, Z1); MEET(Z21, Z11, Z2); MEET(Z21, Z10, Z3); MEET(Z21, Z9, Z4); MEET(Z21, Z8, Z5); \
outside5: \
	GET(COLUMN6(SI), 6, outside6, Z22); MEET(Z22, Z14, Z0); MEET(Z22, Z13, Z1); MEET(Z22, Z12, Z2); MEET(Z22, Z11, Z3); MEET(Z22, Z10, Z4); MEET(Z22, Z9, Z5); MEET(Z22, Z8, Z6); \
outside6: \
	GET(COLUMN7(SI), 7, outside7, Z23); MEET(Z23, Z14, Z1); MEET(Z23, Z13, Z2); MEET(Z23, Z12, Z3); MEET(Z23, Z11, Z4); MEET(Z23, Z10, Z5); MEET(Z23, Z9, Z6); \
outside7: \
	GET(COLUMN8(SI), 8, outside8, Z16); MEET(Z16, Z14, Z2); MEET(Z16, Z13, Z3); MEET(Z16, Z12, Z4); MEET(Z16, Z11, Z5); MEET(Z16, Z10, Z6); \
outside8: \
	GET(COLUMN9(SI), 9, outside9, Z17); MEET(Z17, Z14, Z3); MEET(Z17, Z13, Z4); MEET(Z17, Z12, Z5); MEET(Z17, Z11, Z6); \
outside9: \
	GET(COLUMN10(SI), 10, outside10, Z18); MEET(Z18, Z14, Z4); MEET(Z18, Z13, Z5); MEET(Z18, Z12, Z6); \
outside10: \
	GET(COLUMN11(SI), 11, outside11, Z19); MEET(Z19, Z14, Z5); MEET(Z19, Z13, Z6); \
outside11: \
	GET(COLUMN12(SI), 12, outside12, Z20); MEET(Z20, Z14, Z6); \
outside12:

#define LINE8 \
	GET(COLUMN0(SI), 0, outside0, Z16); MEET(Z16, Z8, Z0); \
outside0: \
	GET(COLUMN1(SI), 1, outside1, Z17); MEET(Z17, Z9, Z0); MEET(Z17, Z8, Z1); \
outside1: \
	GET(COLUMN2(SI), 2, outside2, Z18); MEET(Z18, Z10, Z0); MEET(Z18, Z9, Z1); MEET(Z18, Z8, Z2); \
outside2: \
	GET(COLUMN3(SI), 3, outside3, Z19); MEET(Z19, Z11, Z0); MEET(Z19, Z10, Z1); MEET(Z19, Z9, Z2); MEET(Z19, Z8, Z3); \
outside3: \
	GET(COLUMN4(SI), 4, outside4, Z20); MEET(Z20, Z12, Z0); MEET(Z20, Z11, Z1); MEET(Z20, Z10, Z2); MEET(Z20, Z9, Z3); MEET(Z20, Z8, Z4); \
outside4: \
	GET(COLUMN5(SI), 5, outside5, Z21); MEET(Z21, Z13, Z0); MEET(Z21, Z12, Z1); MEET(Z21, Z11, Z2); MEET(Z21, Z10, Z3); MEET(Z21, Z9, Z4); MEET(Z21, Z8, Z5); \
outside5: \
	GET(COLUMN6(SI), 6, outside6, Z22); MEET(Z22, Z14, Z0); MEET(Z22, Z13, Z1); MEET(Z22, Z12, Z2); MEET(Z22, Z11, Z3); MEET(Z22, Z10, Z4); MEET(Z22, Z9, Z5); MEET(Z22, Z8, Z6); \
outside6: \
	GET(COLUMN7(SI), 7, outside7, Z23); MEET(Z23, Z14, Z1); MEET(Z23, Z13, Z2); MEET(Z23, Z12, Z3); MEET(Z23, Z11, Z4); MEET(Z23, Z10, Z5); MEET(Z23, Z9, Z6); MEET(Z23, Z8, Z7); \
outside7: \
	GET(COLUMN8(SI), 8, outside8, Z16); MEET(Z16, Z14, Z2); MEET(Z16, Z13, Z3); MEET(Z16, Z12, Z4); MEET(Z16, Z11, Z5); MEET(Z16, Z10, Z6); MEET(Z16, Z9, Z7); \
outside8: \
	GET(COLUMN9(SI), 9, outside9, Z17); MEET(Z17, Z14, Z3); MEET(Z17, Z13, Z4); MEET(Z17, Z12, Z5); MEET(Z17, Z11, Z6); MEET(Z17, Z10, Z7); \
outside9: \
	GET(COLUMN10(SI), 10, outside10, Z18); MEET(Z18, Z14, Z4); MEET(Z18, Z13, Z5); MEET(Z18, Z12, Z6); MEET(Z18, Z11, Z7); \
outside10: \
	GET(COLUMN11(SI), 11, outside11, Z19); MEET(Z19, Z14, Z5); MEET(Z19, Z13, Z6); MEET(Z19, Z12, Z7); \
outside11: \
	GET(COLUMN12(SI), 12, outside12, Z20); MEET(Z20, Z14, Z6); MEET(Z20, Z13, Z7); \
outside12: \
	GET(COLUMN13(SI), 13, outside13, Z21); MEET(Z21, Z14, Z7); \
outside13:
#define BEGIN4 VMOVUPS (R9), Z0; VMOVAPS Z0, Z1; VMOVAPS Z0, Z2; VMOVAPS Z0, Z3
#define OUT4 VMOVUPS Z0, COLUMN0(DI); VMOVUPS Z1, COLUMN1(DI); VMOVUPS Z2, COLUMN2(DI); VMOVUPS Z3, COLUMN3(DI)
#define BEGIN7 VMOVUPS (R9), Z0; VMOVAPS Z0, Z1; VMOVAPS Z0, Z2; VMOVAPS Z0, Z3; VMOVAPS Z0, Z4; VMOVAPS Z0, Z5; VMOVAPS Z0, Z6
#define OUT7 VMOVUPS Z0, COLUMN0(DI); VMOVUPS Z1, COLUMN1(DI); VMOVUPS Z2, COLUMN2(DI); VMOVUPS Z3, COLUMN3(DI); VMOVUPS Z4, COLUMN4(DI); VMOVUPS Z5, COLUMN5(DI); VMOVUPS Z6, COLUMN6(DI)
#define BEGIN8 VMOVUPS (R9), Z0; VMOVAPS Z0, Z1; VMOVAPS Z0, Z2; VMOVAPS Z0, Z3; VMOVAPS Z0, Z4; VMOVAPS Z0, Z5; VMOVAPS Z0, Z6; VMOVAPS Z0, Z7
#define OUT8 VMOVUPS Z0, COLUMN0(DI); VMOVUPS Z1, COLUMN1(DI); VMOVUPS Z2, COLUMN2(DI); VMOVUPS Z3, COLUMN3(DI); VMOVUPS Z4, COLUMN4(DI); VMOVUPS Z5, COLUMN5(DI); VMOVUPS Z6, COLUMN6(DI); VMOVUPS Z7, COLUMN7(DI)

// The weights of a vector are those of all lines of a window, with the bias behind them.
#define SEVEN(BEGIN, LINE, OUT) \
	MOVQ t+0(FP), DX; MOVQ 0(DX), R14; MOVQ 8(DX), R8; SHLQ $2, R8; MOVQ 48(DX), DI; MOVQ 56(DX), R15; SHLQ $2, R15; \
	MOVQ 72(DX), CX; IMULQ R15, CX; ADDQ CX, R14; \
	LEAQ (R15)(R15*2), R13; LEAQ (R15)(R15*4), R12; LEAQ (R13)(R15*4), R11; LEAQ (R15)(R15*8), R10; \
	LEAQ (R10)(R15*2), BX; LEAQ (BX)(R15*2), AX; \
	MOVQ 64(DX), CX; MOVQ CX, left-8(SP); MOVQ 24(DX), R9; MOVQ R9, w-16(SP); \
vector: \
	MOVQ t+0(FP), DX; MOVQ w-16(SP), R9; MOVQ 40(DX), CX; LEAQ (R9)(CX*4), R9; \
	BEGIN; \
	MOVQ w-16(SP), R9; MOVQ 16(DX), CX; MOVQ 80(DX), DX; MOVQ R14, SI; TESTQ CX, CX; JZ out; \
line: \
	VMOVUPS (R9), Z8; VMOVUPS 64(R9), Z9; VMOVUPS 128(R9), Z10; VMOVUPS 192(R9), Z11; \
	VMOVUPS 256(R9), Z12; VMOVUPS 320(R9), Z13; VMOVUPS 384(R9), Z14; \
	LINE; \
	ADDQ $448, R9; ADDQ R8, SI; DECQ CX; JNZ line; \
out: \
	OUT; \
	MOVQ t+0(FP), DX; MOVQ 32(DX), CX; SHLQ $2, CX; ADDQ CX, w-16(SP); \
	ADDQ $64, R14; ADDQ $64, DI; DECQ left-8(SP); JNZ vector; \
	VZEROUPPER; \
	RET

// func seven4AVX512(t *Seven)
TEXT ·seven4AVX512(SB), NOSPLIT, $16-8
	SEVEN(BEGIN4, LINE4, OUT4)

// func seven7AVX512(t *Seven)
TEXT ·seven7AVX512(SB), NOSPLIT, $16-8
	SEVEN(BEGIN7, LINE7, OUT7)

// func seven8AVX512(t *Seven)
TEXT ·seven8AVX512(SB), NOSPLIT, $16-8
	SEVEN(BEGIN8, LINE8, OUT8)
