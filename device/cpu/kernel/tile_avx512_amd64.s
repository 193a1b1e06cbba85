#include "textflag.h"

// Matrix product tiles for AVX-512: up to 12 rows of 32 columns stay in registers
// while k runs. Row r lives in Z(2r) and Z(2r+1), the current row of B in Z24 and
// Z25. Two fused multiply-adds per broadcast keep both FMA ports full: 24 of them
// take 12 cycles, the 14 loads beside them 7.
//
//	SI  A            R8   bytes from one k to the next (cols) or row to row (rows)
//	BX  B            R9   bytes from one k to the next
//	DI  C            R10  bytes from row to row
//	DX  addend       R11  bytes from row to row
//	CX  k left       K1, K2  columns that exist

// Fetch the next row of B: whole, or only the columns that exist.
#define B_FULL   VMOVUPS (BX), Z24; VMOVUPS 64(BX), Z25; PREFETCHT0 (BX)(R9*8); PREFETCHT0 64(BX)(R9*8)
#define B_MASKED VMOVUPS.Z (BX), K1, Z24; VMOVUPS.Z 64(BX), K2, Z25

// acc += a * row of B, for one row of A.
#define FMA2(at, c0, c1) VBROADCASTSS at, Z26; VFMADD231PS Z24, Z26, c0; VFMADD231PS Z25, Z26, c1

// One k for h rows when A is stored column by column (packed panels).
#define COL1  FMA2(0(SI), Z0, Z1)
#define COL2  COL1; FMA2(4(SI), Z2, Z3)
#define COL4  COL2; FMA2(8(SI), Z4, Z5); FMA2(12(SI), Z6, Z7)
#define COL8  COL4; FMA2(16(SI), Z8, Z9); FMA2(20(SI), Z10, Z11); FMA2(24(SI), Z12, Z13); FMA2(28(SI), Z14, Z15)
#define COL12 COL8; FMA2(32(SI), Z16, Z17); FMA2(36(SI), Z18, Z19); FMA2(40(SI), Z20, Z21); FMA2(44(SI), Z22, Z23)
#define COL_NEXT ADDQ R8, SI; ADDQ R9, BX

// The same when A is stored row by row. Rows 0 to 2 are at SI, 3 to 5 at R12, 6 to
// 8 at R13, 9 to 11 at AX.
#define ROW1  FMA2((SI), Z0, Z1)
#define ROW2  ROW1; FMA2((SI)(R8*1), Z2, Z3)
#define ROW4  ROW2; FMA2((SI)(R8*2), Z4, Z5); FMA2((R12), Z6, Z7)
#define ROW8  ROW4; FMA2((R12)(R8*1), Z8, Z9); FMA2((R12)(R8*2), Z10, Z11); FMA2((R13), Z12, Z13); FMA2((R13)(R8*1), Z14, Z15)
#define ROW12 ROW8; FMA2((R13)(R8*2), Z16, Z17); FMA2((AX), Z18, Z19); FMA2((AX)(R8*1), Z20, Z21); FMA2((AX)(R8*2), Z22, Z23)
#define ROW_NEXT ADDQ $4, SI; ADDQ $4, R12; ADDQ $4, R13; ADDQ $4, AX; ADDQ R9, BX

#define ZERO2(c0, c1) VPXORD c0, c0, c0; VPXORD c1, c1, c1
#define ZERO1  ZERO2(Z0, Z1)
#define ZERO_2 ZERO1; ZERO2(Z2, Z3)
#define ZERO4  ZERO_2; ZERO2(Z4, Z5); ZERO2(Z6, Z7)
#define ZERO8  ZERO4; ZERO2(Z8, Z9); ZERO2(Z10, Z11); ZERO2(Z12, Z13); ZERO2(Z14, Z15)
#define ZERO12 ZERO8; ZERO2(Z16, Z17); ZERO2(Z18, Z19); ZERO2(Z20, Z21); ZERO2(Z22, Z23)

#define ADD2(c0, c1) VMOVUPS.Z (DX), K1, Z24; VMOVUPS.Z 64(DX), K2, Z25; VADDPS Z24, c0, c0; VADDPS Z25, c1, c1; ADDQ R11, DX
#define ADD1  ADD2(Z0, Z1)
#define ADD_2 ADD1; ADD2(Z2, Z3)
#define ADD4  ADD_2; ADD2(Z4, Z5); ADD2(Z6, Z7)
#define ADD8  ADD4; ADD2(Z8, Z9); ADD2(Z10, Z11); ADD2(Z12, Z13); ADD2(Z14, Z15)
#define ADD12 ADD8; ADD2(Z16, Z17); ADD2(Z18, Z19); ADD2(Z20, Z21); ADD2(Z22, Z23)

#define OUT2(c0, c1) VMOVUPS c0, K1, (DI); VMOVUPS c1, K2, 64(DI); ADDQ R10, DI
#define OUT1  OUT2(Z0, Z1)
#define OUT_2 OUT1; OUT2(Z2, Z3)
#define OUT4  OUT_2; OUT2(Z4, Z5); OUT2(Z6, Z7)
#define OUT8  OUT4; OUT2(Z8, Z9); OUT2(Z10, Z11); OUT2(Z12, Z13); OUT2(Z14, Z15)
#define OUT12 OUT8; OUT2(Z16, Z17); OUT2(Z18, Z19); OUT2(Z20, Z21); OUT2(Z22, Z23)

// Fetch the lines of C early: they come from far, and are wanted at the end.
#define FETCH1 PREFETCHT0 (R11); PREFETCHT0 64(R11); ADDQ R10, R11
#define FETCH4 FETCH1; FETCH1; FETCH1; FETCH1
#define FETCH12 MOVQ DI, R11; FETCH4; FETCH4; FETCH4

// Arguments of every tile, see tileFunc in tile.go. Steps come in elements.
#define ARGUMENTS \
	MOVQ a+8(FP), SI; MOVQ aStep+16(FP), R8; SHLQ $2, R8; \
	MOVQ b+24(FP), BX; MOVQ bStep+32(FP), R9; SHLQ $2, R9; \
	MOVQ c+40(FP), DI; MOVQ cStep+48(FP), R10; SHLQ $2, R10; FETCH12; \
	MOVQ cols+56(FP), CX; MOVQ $1, AX; SHLQ CX, AX; DECQ AX; \
	KMOVW AX, K1; SHRQ $16, AX; KMOVW AX, K2; \
	MOVQ add+64(FP), DX; MOVQ addStep+72(FP), R11; SHLQ $2, R11; \
	LEAQ (SI)(R8*2), R12; ADDQ R8, R12; \
	LEAQ (R12)(R8*2), R13; ADDQ R8, R13; \
	LEAQ (R13)(R8*2), AX; ADDQ R8, AX; \
	MOVQ cols+56(FP), R14; MOVQ k+0(FP), CX

#define TILE(ZERO, STEP, NEXT, ADD, OUT) \
	ARGUMENTS; \
	ZERO; \
	TESTQ CX, CX; JZ sum; \
	CMPQ R14, $32; JNE masked; \
full: \
	B_FULL; STEP; NEXT; DECQ CX; JNZ full; \
	JMP sum; \
masked: \
	B_MASKED; STEP; NEXT; DECQ CX; JNZ masked; \
sum: \
	TESTQ DX, DX; JZ out; \
	ADD; \
out: \
	OUT; \
	VZEROUPPER; \
	RET

TEXT ·tileCols12AVX512(SB), NOSPLIT, $0-80
	TILE(ZERO12, COL12, COL_NEXT, ADD12, OUT12)

TEXT ·tileCols8AVX512(SB), NOSPLIT, $0-80
	TILE(ZERO8, COL8, COL_NEXT, ADD8, OUT8)

TEXT ·tileCols4AVX512(SB), NOSPLIT, $0-80
	TILE(ZERO4, COL4, COL_NEXT, ADD4, OUT4)

TEXT ·tileCols2AVX512(SB), NOSPLIT, $0-80
	TILE(ZERO_2, COL2, COL_NEXT, ADD_2, OUT_2)

TEXT ·tileCols1AVX512(SB), NOSPLIT, $0-80
	TILE(ZERO1, COL1, COL_NEXT, ADD1, OUT1)

TEXT ·tileRows12AVX512(SB), NOSPLIT, $0-80
	TILE(ZERO12, ROW12, ROW_NEXT, ADD12, OUT12)

TEXT ·tileRows8AVX512(SB), NOSPLIT, $0-80
	TILE(ZERO8, ROW8, ROW_NEXT, ADD8, OUT8)

TEXT ·tileRows4AVX512(SB), NOSPLIT, $0-80
	TILE(ZERO4, ROW4, ROW_NEXT, ADD4, OUT4)

TEXT ·tileRows2AVX512(SB), NOSPLIT, $0-80
	TILE(ZERO_2, ROW2, ROW_NEXT, ADD_2, OUT_2)

TEXT ·tileRows1AVX512(SB), NOSPLIT, $0-80
	TILE(ZERO1, ROW1, ROW_NEXT, ADD1, OUT1)
