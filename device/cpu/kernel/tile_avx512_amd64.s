#include "textflag.h"

#include "tile_avx512.h"

// Matrix product tiles for AVX-512: up to 6 rows of 64 columns stay in registers while
// k runs. Row r lives in Z(4r) to Z(4r+3), the current row of B in Z24 to Z27. Four
// fused multiply-adds per broadcast keep both FMA ports full: 24 of them take 12
// cycles, in which 10 loads find room without delaying them. (12 rows of 32 columns
// need 14 loads and reach 90% of that.)
//
//	SI  A            R8   bytes from one k to the next (cols) or row to row (rows)
//	BX  B            R9   bytes from one k to the next
//	DI  C            R10  bytes from row to row
//	DX  C to fetch, and R14 below it; then DX is the addend, R11 its bytes from row to row
//	R11 line to fetch for later tiles, R13 to the second one
//	CX  k left       K1 to K4  columns that exist

// acc += a * row of B, for one row of A.
#define FMA1(at, c0)             VBROADCASTSS at, Z28; VFMADD231PS Z24, Z28, c0
#define FMA2(at, c0, c1)         FMA1(at, c0); VFMADD231PS Z25, Z28, c1
#define FMA4(at, c0, c1, c2, c3) FMA2(at, c0, c1); VFMADD231PS Z26, Z28, c2; VFMADD231PS Z27, Z28, c3

// One k for h rows when A is stored column by column (packed panels), and this column at
// x: whole rows of B, the half, or the quarter.
#define COL1(x) FMA4(0 x, Z0, Z1, Z2, Z3)
#define COL2(x) COL1(x); FMA4(4 x, Z4, Z5, Z6, Z7)
#define COL4(x) COL2(x); FMA4(8 x, Z8, Z9, Z10, Z11); FMA4(12 x, Z12, Z13, Z14, Z15)
#define COL6(x) COL4(x); FMA4(16 x, Z16, Z17, Z18, Z19); FMA4(20 x, Z20, Z21, Z22, Z23)
#define COL1_HALF FMA2(0(SI), Z0, Z1)
#define COL2_HALF COL1_HALF; FMA2(4(SI), Z4, Z5)
#define COL4_HALF COL2_HALF; FMA2(8(SI), Z8, Z9); FMA2(12(SI), Z12, Z13)
#define COL6_HALF COL4_HALF; FMA2(16(SI), Z16, Z17); FMA2(20(SI), Z20, Z21)
#define COL1_QUARTER FMA1(0(SI), Z0)
#define COL2_QUARTER COL1_QUARTER; FMA1(4(SI), Z4)
#define COL4_QUARTER COL2_QUARTER; FMA1(8(SI), Z8); FMA1(12(SI), Z12)
#define COL6_QUARTER COL4_QUARTER; FMA1(16(SI), Z16); FMA1(20(SI), Z20)

// The same when A is stored row by row, and this column at byte o of the rows. Rows 0 to
// 2 are at SI, 3 to 5 at R12.
#define ROW1(o) FMA4(o(SI), Z0, Z1, Z2, Z3)
#define ROW2(o) ROW1(o); FMA4(o(SI)(R8*1), Z4, Z5, Z6, Z7)
#define ROW4(o) ROW2(o); FMA4(o(SI)(R8*2), Z8, Z9, Z10, Z11); FMA4(o(R12), Z12, Z13, Z14, Z15)
#define ROW6(o) ROW4(o); FMA4(o(R12)(R8*1), Z16, Z17, Z18, Z19); FMA4(o(R12)(R8*2), Z20, Z21, Z22, Z23)
#define ROW1_HALF FMA2((SI), Z0, Z1)
#define ROW2_HALF ROW1_HALF; FMA2((SI)(R8*1), Z4, Z5)
#define ROW4_HALF ROW2_HALF; FMA2((SI)(R8*2), Z8, Z9); FMA2((R12), Z12, Z13)
#define ROW6_HALF ROW4_HALF; FMA2((R12)(R8*1), Z16, Z17); FMA2((R12)(R8*2), Z20, Z21)
#define ROW1_QUARTER FMA1((SI), Z0)
#define ROW2_QUARTER ROW1_QUARTER; FMA1((SI)(R8*1), Z4)
#define ROW4_QUARTER ROW2_QUARTER; FMA1((SI)(R8*2), Z8); FMA1((R12), Z12)
#define ROW6_QUARTER ROW4_QUARTER; FMA1((R12)(R8*1), Z16); FMA1((R12)(R8*2), Z20)

// What is added to and stored of the first quarter alone: stores of which a mask leaves nothing take as long as others.
#define ADD_ROW_QUARTER(c0) VMOVUPS.Z (DX), K1, Z24; VADDPS Z24, c0, c0; ADDQ R11, DX
#define ADD1_QUARTER ADD_ROW_QUARTER(Z0)
#define ADD2_QUARTER ADD1_QUARTER; ADD_ROW_QUARTER(Z4)
#define ADD4_QUARTER ADD2_QUARTER; ADD_ROW_QUARTER(Z8); ADD_ROW_QUARTER(Z12)
#define ADD6_QUARTER ADD4_QUARTER; ADD_ROW_QUARTER(Z16); ADD_ROW_QUARTER(Z20)
#define OUT_ROW_QUARTER(c0) VMOVUPS c0, K1, (DI); ADDQ R10, DI
#define OUT1_QUARTER OUT_ROW_QUARTER(Z0)
#define OUT2_QUARTER OUT1_QUARTER; OUT_ROW_QUARTER(Z4)
#define OUT4_QUARTER OUT2_QUARTER; OUT_ROW_QUARTER(Z8); OUT_ROW_QUARTER(Z12)
#define OUT6_QUARTER OUT4_QUARTER; OUT_ROW_QUARTER(Z16); OUT_ROW_QUARTER(Z20)

// A tile: with packed columns, with whole rows of a B that is not packed, or with some of the columns: up to all, 32 or 16.
#define TILE(ZERO, FOUR, ONE, HALF, QUARTER, NEXT, ADD, OUT, ADD_QUARTER, OUT_QUARTER) \
	ARGUMENTS; \
	ZERO; \
	TESTQ CX, CX; JZ sum; \
	CMPQ AX, $64; JEQ whole; \
	CMPQ AX, $32; JGT masked; \
	CMPQ AX, $16; JGT half; \
quarter: \
	VMOVUPS.Z (BX), K1, Z24; QUARTER; NEXT; DECQ CX; JNZ quarter; \
	MOVQ add+64(FP), DX; MOVQ addStep+72(FP), R11; SHLQ $2, R11; \
	TESTQ DX, DX; JZ quarterOut; \
	ADD_QUARTER; \
quarterOut: \
	OUT_QUARTER; \
	VZEROUPPER; \
	RET; \
half: \
	B_HALF; HALF; NEXT; DECQ CX; JNZ half; \
	JMP sum; \
masked: \
	B_MASKED; ONE; NEXT; DECQ CX; JNZ masked; \
	JMP sum; \
inPlace: \
	B_FULL((BX)); B_AHEAD; ONE; NEXT; DECQ CX; JNZ inPlace; \
	JMP sum; \
whole: \
	CMPQ R9, $256; JNE inPlace; \
	PACKED_COLUMNS(TILE_LATER, FOUR, ONE, NEXT) \
	MOVQ add+64(FP), DX; MOVQ addStep+72(FP), R11; SHLQ $2, R11; \
	TESTQ DX, DX; JZ out; \
	ADD; \
out: \
	OUT; \
	VZEROUPPER; \
	RET

// Lines of whole tiles side by side, see lineFunc in tile.go: as a tile with packed columns, for panel after panel. Each
// group of 16 k of the first panels prefetches two cache lines for later lines.
#define LINE_LATER ADDQ R15, R11
#define LINE(FOUR, ONE, NEXT) \
	MOVQ $-1, AX; KMOVW AX, K1; KMOVW AX, K2; KMOVW AX, K3; KMOVW AX, K4; \
	MOVQ aStep+16(FP), R8; SHLQ $2, R8; \
	MOVQ b+24(FP), BX; MOVQ $256, R9; \
	MOVQ c+32(FP), DI; MOVQ cStep+40(FP), R10; SHLQ $2, R10; \
	MOVQ ahead_pair+104(FP), R13; SHLQ $2, R13; \
panel: \
	MOVQ a+8(FP), SI; MOVQ SI, R11; XORQ R15, R15; \
	SUBQ $1, ahead_panels+96(FP); JLT near; \
	MOVQ ahead_next+88(FP), R15; SHLQ $2, R15; \
	MOVQ ahead_from+72(FP), R11; MOVQ ahead_panel+80(FP), AX; LEAQ (R11)(AX*4), AX; MOVQ AX, ahead_from+72(FP); \
near: \
	LEAQ (SI)(R8*2), R12; ADDQ R8, R12; \
	MOVQ DI, DX; LEAQ (DI)(R10*4), R14; LEAQ (R14)(R10*2), R14; \
	MOVQ k+0(FP), CX; \
	ZERO6; \
	PACKED_COLUMNS(LINE_LATER, FOUR, ONE, NEXT) \
	MOVQ add+48(FP), DX; MOVQ addStep+56(FP), R11; SHLQ $2, R11; \
	TESTQ DX, DX; JZ out; \
	LEAQ 256(DX), AX; MOVQ AX, add+48(FP); \
	ADD6; \
out: \
	LEAQ 256(DI), AX; \
	OUT6; \
	MOVQ AX, DI; \
	DECQ panels+64(FP); JNZ panel; \
	VZEROUPPER; \
	RET

TEXT ·tileCols6AVX512(SB), NOSPLIT, $0-104
	TILE(ZERO6, COLS4(COL6), COL6((SI)), COL6_HALF, COL6_QUARTER, COL_NEXT, ADD6, OUT6, ADD6_QUARTER, OUT6_QUARTER)

TEXT ·tileCols4AVX512(SB), NOSPLIT, $0-104
	TILE(ZERO4, COLS4(COL4), COL4((SI)), COL4_HALF, COL4_QUARTER, COL_NEXT, ADD4, OUT4, ADD4_QUARTER, OUT4_QUARTER)

TEXT ·tileCols2AVX512(SB), NOSPLIT, $0-104
	TILE(ZERO2, COLS4(COL2), COL2((SI)), COL2_HALF, COL2_QUARTER, COL_NEXT, ADD2, OUT2, ADD2_QUARTER, OUT2_QUARTER)

TEXT ·tileCols1AVX512(SB), NOSPLIT, $0-104
	TILE(ZERO1, COLS4(COL1), COL1((SI)), COL1_HALF, COL1_QUARTER, COL_NEXT, ADD1, OUT1, ADD1_QUARTER, OUT1_QUARTER)

TEXT ·tileRows6AVX512(SB), NOSPLIT, $0-104
	TILE(ZERO6, ROWS4(ROW6), ROW6(0), ROW6_HALF, ROW6_QUARTER, ROW_NEXT, ADD6, OUT6, ADD6_QUARTER, OUT6_QUARTER)

TEXT ·tileRows4AVX512(SB), NOSPLIT, $0-104
	TILE(ZERO4, ROWS4(ROW4), ROW4(0), ROW4_HALF, ROW4_QUARTER, ROW_NEXT, ADD4, OUT4, ADD4_QUARTER, OUT4_QUARTER)

TEXT ·tileRows2AVX512(SB), NOSPLIT, $0-104
	TILE(ZERO2, ROWS4(ROW2), ROW2(0), ROW2_HALF, ROW2_QUARTER, ROW_NEXT, ADD2, OUT2, ADD2_QUARTER, OUT2_QUARTER)

TEXT ·tileRows1AVX512(SB), NOSPLIT, $0-104
	TILE(ZERO1, ROWS4(ROW1), ROW1(0), ROW1_HALF, ROW1_QUARTER, ROW_NEXT, ADD1, OUT1, ADD1_QUARTER, OUT1_QUARTER)

// func lineColsAVX512(k int, a *float32, aStep int, b *float32, c *float32, cStep int, add *float32, addStep, panels int, ahead later)
TEXT ·lineColsAVX512(SB), NOSPLIT, $0-112
	LINE(COLS4(COL6), COL6((SI)), COL_NEXT)

// func lineRowsAVX512(k int, a *float32, aStep int, b *float32, c *float32, cStep int, add *float32, addStep, panels int, ahead later)
TEXT ·lineRowsAVX512(SB), NOSPLIT, $0-112
	LINE(ROWS4(ROW6), ROW6(0), ROW_NEXT)
