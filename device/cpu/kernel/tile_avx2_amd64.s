#include "textflag.h"

// Matrix product tiles for AVX2: up to 6 rows of 16 columns stay in registers while
// k runs. Row r lives in Y(2r) and Y(2r+1), the current row of B in Y12 and Y13.
//
//	SI  A            R8   bytes from one k to the next (cols) or row to row (rows)
//	BX  B            R9   bytes from one k to the next
//	DI  C            R10  bytes from row to row
//	DX  addend       R11  bytes from row to row
//	CX  k left       R14  mask of the columns that exist: 16 words of 0 or -1

// Fetch two vectors: whole, at byte o of B, or only the columns that exist.
#define B_FULL(o) VMOVUPS o(BX), Y12; VMOVUPS (o+32)(BX), Y13
#define MASKED(at0, at1) \
	VMOVUPS (R14), Y14; VMASKMOVPS at0, Y14, Y12; \
	VMOVUPS 32(R14), Y14; VMASKMOVPS at1, Y14, Y13

#define FMA2(at, c0, c1) VBROADCASTSS at, Y14; VFMADD231PS Y12, Y14, c0; VFMADD231PS Y13, Y14, c1

// One k for h rows when A is stored column by column (packed panels), and this column at x.
#define COL1(x) FMA2(0 x, Y0, Y1)
#define COL2(x) COL1(x); FMA2(4 x, Y2, Y3)
#define COL4(x) COL2(x); FMA2(8 x, Y4, Y5); FMA2(12 x, Y6, Y7)
#define COL6(x) COL4(x); FMA2(16 x, Y8, Y9); FMA2(20 x, Y10, Y11)
#define COL_NEXT ADDQ R8, SI; ADDQ R9, BX

// The same when A is stored row by row, and this column at byte o of the rows. Rows 0 to 2 are
// at SI, 3 to 5 at R12.
#define ROW1(o) FMA2(o(SI), Y0, Y1)
#define ROW2(o) ROW1(o); FMA2(o(SI)(R8*1), Y2, Y3)
#define ROW4(o) ROW2(o); FMA2(o(SI)(R8*2), Y4, Y5); FMA2(o(R12), Y6, Y7)
#define ROW6(o) ROW4(o); FMA2(o(R12)(R8*1), Y8, Y9); FMA2(o(R12)(R8*2), Y10, Y11)
#define ROW_NEXT ADDQ $4, SI; ADDQ $4, R12; ADDQ R9, BX

// Four k of packed columns, and the pointers moved on. There are as few other instructions as
// possible: where another thread shares the core, these decide the speed.
#define COLS4(STEP) \
	B_FULL(0); STEP((SI)); B_FULL(64); STEP((SI)(R8*1)); LEAQ (SI)(R8*2), SI; \
	B_FULL(128); STEP((SI)); B_FULL(192); STEP((SI)(R8*1)); LEAQ (SI)(R8*2), SI; ADDQ $256, BX
#define ROWS4(STEP) \
	B_FULL(0); STEP(0); B_FULL(64); STEP(4); B_FULL(128); STEP(8); B_FULL(192); STEP(12); \
	ADDQ $16, SI; ADDQ $16, R12; ADDQ $256, BX

#define ZERO2(c0, c1) VXORPS c0, c0, c0; VXORPS c1, c1, c1
#define ZERO1  ZERO2(Y0, Y1)
#define ZERO_2 ZERO1; ZERO2(Y2, Y3)
#define ZERO4  ZERO_2; ZERO2(Y4, Y5); ZERO2(Y6, Y7)
#define ZERO6  ZERO4; ZERO2(Y8, Y9); ZERO2(Y10, Y11)

#define ADD2(c0, c1) MASKED((DX), 32(DX)); VADDPS Y12, c0, c0; VADDPS Y13, c1, c1; ADDQ R11, DX
#define ADD1  ADD2(Y0, Y1)
#define ADD_2 ADD1; ADD2(Y2, Y3)
#define ADD4  ADD_2; ADD2(Y4, Y5); ADD2(Y6, Y7)
#define ADD6  ADD4; ADD2(Y8, Y9); ADD2(Y10, Y11)

#define OUT2(c0, c1) \
	VMOVUPS (R14), Y14; VMASKMOVPS c0, Y14, (DI); \
	VMOVUPS 32(R14), Y14; VMASKMOVPS c1, Y14, 32(DI); ADDQ R10, DI
#define OUT1  OUT2(Y0, Y1)
#define OUT_2 OUT1; OUT2(Y2, Y3)
#define OUT4  OUT_2; OUT2(Y4, Y5); OUT2(Y6, Y7)
#define OUT6  OUT4; OUT2(Y8, Y9); OUT2(Y10, Y11)

// The same of whole rows: a masked store takes as long as many whole ones.
#define WHOLE_ADD2(c0, c1) VADDPS (DX), c0, c0; VADDPS 32(DX), c1, c1; ADDQ R11, DX
#define WHOLE_ADD1  WHOLE_ADD2(Y0, Y1)
#define WHOLE_ADD_2 WHOLE_ADD1; WHOLE_ADD2(Y2, Y3)
#define WHOLE_ADD4  WHOLE_ADD_2; WHOLE_ADD2(Y4, Y5); WHOLE_ADD2(Y6, Y7)
#define WHOLE_ADD6  WHOLE_ADD4; WHOLE_ADD2(Y8, Y9); WHOLE_ADD2(Y10, Y11)

#define WHOLE_OUT2(c0, c1) VMOVUPS c0, (DI); VMOVUPS c1, 32(DI); ADDQ R10, DI
#define WHOLE_OUT1  WHOLE_OUT2(Y0, Y1)
#define WHOLE_OUT_2 WHOLE_OUT1; WHOLE_OUT2(Y2, Y3)
#define WHOLE_OUT4  WHOLE_OUT_2; WHOLE_OUT2(Y4, Y5); WHOLE_OUT2(Y6, Y7)
#define WHOLE_OUT6  WHOLE_OUT4; WHOLE_OUT2(Y8, Y9); WHOLE_OUT2(Y10, Y11)

// Arguments of every tile, see tileFunc in tile.go. Steps come in elements.
// laneMask holds 16 words of -1, then 16 of 0: the mask of n columns starts at 16-n.
#define ARGUMENTS \
	MOVQ a+8(FP), SI; MOVQ aStep+16(FP), R8; SHLQ $2, R8; \
	MOVQ b+24(FP), BX; MOVQ bStep+32(FP), R9; SHLQ $2, R9; \
	MOVQ c+40(FP), DI; MOVQ cStep+48(FP), R10; SHLQ $2, R10; \
	MOVQ cols+56(FP), AX; \
	LEAQ ·laneMask+64(SB), R14; SHLQ $2, AX; SUBQ AX, R14; \
	MOVQ add+64(FP), DX; MOVQ addStep+72(FP), R11; SHLQ $2, R11; \
	LEAQ (SI)(R8*2), R12; ADDQ R8, R12; \
	MOVQ k+0(FP), CX

#define TILE(ZERO, FOUR, ONE, NEXT, ADD, OUT, WHOLE_ADD, WHOLE_OUT) \
	ARGUMENTS; \
	ZERO; \
	TESTQ CX, CX; JZ sum; \
	CMPQ AX, $64; JNE masked; \
	CMPQ R9, $64; JNE full; \
	SUBQ $4, CX; JLT rest; \
four: \
	FOUR; SUBQ $4, CX; JGE four; \
rest: \
	ADDQ $4, CX; JZ sum; \
full: \
	B_FULL(0); ONE; NEXT; DECQ CX; JNZ full; \
	JMP sum; \
masked: \
	MASKED((BX), 32(BX)); ONE; NEXT; DECQ CX; JNZ masked; \
sum: \
	CMPQ AX, $64; JNE partly; \
	TESTQ DX, DX; JZ whole; \
	WHOLE_ADD; \
whole: \
	WHOLE_OUT; \
	VZEROUPPER; \
	RET; \
partly: \
	TESTQ DX, DX; JZ out; \
	ADD; \
out: \
	OUT; \
	VZEROUPPER; \
	RET

TEXT ·tileCols6AVX2(SB), NOSPLIT, $0-104
	TILE(ZERO6, COLS4(COL6), COL6((SI)), COL_NEXT, ADD6, OUT6, WHOLE_ADD6, WHOLE_OUT6)

TEXT ·tileCols4AVX2(SB), NOSPLIT, $0-104
	TILE(ZERO4, COLS4(COL4), COL4((SI)), COL_NEXT, ADD4, OUT4, WHOLE_ADD4, WHOLE_OUT4)

TEXT ·tileCols2AVX2(SB), NOSPLIT, $0-104
	TILE(ZERO_2, COLS4(COL2), COL2((SI)), COL_NEXT, ADD_2, OUT_2, WHOLE_ADD_2, WHOLE_OUT_2)

TEXT ·tileCols1AVX2(SB), NOSPLIT, $0-104
	TILE(ZERO1, COLS4(COL1), COL1((SI)), COL_NEXT, ADD1, OUT1, WHOLE_ADD1, WHOLE_OUT1)

TEXT ·tileRows6AVX2(SB), NOSPLIT, $0-104
	TILE(ZERO6, ROWS4(ROW6), ROW6(0), ROW_NEXT, ADD6, OUT6, WHOLE_ADD6, WHOLE_OUT6)

TEXT ·tileRows4AVX2(SB), NOSPLIT, $0-104
	TILE(ZERO4, ROWS4(ROW4), ROW4(0), ROW_NEXT, ADD4, OUT4, WHOLE_ADD4, WHOLE_OUT4)

TEXT ·tileRows2AVX2(SB), NOSPLIT, $0-104
	TILE(ZERO_2, ROWS4(ROW2), ROW2(0), ROW_NEXT, ADD_2, OUT_2, WHOLE_ADD_2, WHOLE_OUT_2)

TEXT ·tileRows1AVX2(SB), NOSPLIT, $0-104
	TILE(ZERO1, ROWS4(ROW1), ROW1(0), ROW_NEXT, ADD1, OUT1, WHOLE_ADD1, WHOLE_OUT1)
