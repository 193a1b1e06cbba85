#include "textflag.h"

// Lines of matmul tiles for AVX2, see lineFunc in tile.go: 6 rows of 16 columns stay in
// registers while k runs, for panel after panel. Row r lives in Y(2r) and Y(2r+1), the current row
// of B in Y12 and Y13.
//
//	SI  A, its start R13    R8   bytes from one k to the next (cols) or row to row (rows)
//	BX  B
//	DI  C                   R10  bytes from row to row
//	DX  addend              R11  bytes from row to row
//	CX  k left              AX   panels left
//	R14 what is fetched     R15  bytes from one fetched line to the next, for each four k

#define FMA2(at, c0, c1) VBROADCASTSS at, Y14; VFMADD231PS Y12, Y14, c0; VFMADD231PS Y13, Y14, c1

// One k at byte o of B. A is stored by columns, this one at byte p; or by rows, rows 0 to 2 at SI and 3
// to 5 at R12.
#define COL(o, p) \
	VMOVUPS o(BX), Y12; VMOVUPS (o+32)(BX), Y13; \
	FMA2((p+0)(SI), Y0, Y1); FMA2((p+4)(SI), Y2, Y3); FMA2((p+8)(SI), Y4, Y5); FMA2((p+12)(SI), Y6, Y7); FMA2((p+16)(SI), Y8, Y9); FMA2((p+20)(SI), Y10, Y11)
#define ROW(o, p) \
	VMOVUPS o(BX), Y12; VMOVUPS (o+32)(BX), Y13; \
	FMA2(p(SI), Y0, Y1); FMA2(p(SI)(R8*1), Y2, Y3); FMA2(p(SI)(R8*2), Y4, Y5); \
	FMA2(p(R12), Y6, Y7); FMA2(p(R12)(R8*1), Y8, Y9); FMA2(p(R12)(R8*2), Y10, Y11)

#define COLS4 COL(0, 0); COL(64, 24); COL(128, 48); COL(192, 72); ADDQ $96, SI; ADDQ $256, BX
#define ROWS4 ROW(0, 0); ROW(64, 4); ROW(128, 8); ROW(192, 12); ADDQ $16, SI; ADDQ $16, R12; ADDQ $256, BX
#define COLS1 COL(0, 0); ADDQ $24, SI; ADDQ $64, BX
#define ROWS1 ROW(0, 0); ADDQ $4, SI; ADDQ $4, R12; ADDQ $64, BX

#define ADD2(c0, c1) VADDPS (DX), c0, c0; VADDPS 32(DX), c1, c1; ADDQ R11, DX
#define OUT2(c0, c1) VMOVUPS c0, (DI); VMOVUPS c1, 32(DI); ADDQ R10, DI

// The lines of C that are added to are fetched while k runs.
// So are those of A that come after: a line for every four k of the first panels, see later in tile.go.
#define LINE(FOUR, ONE) \
	MOVQ a+8(FP), R13; MOVQ aStep+16(FP), R8; SHLQ $2, R8; \
	MOVQ b+24(FP), BX; \
	MOVQ c+32(FP), DI; MOVQ cStep+40(FP), R10; SHLQ $2, R10; \
	MOVQ add+48(FP), DX; MOVQ addStep+56(FP), R11; SHLQ $2, R11; \
	MOVQ panels+64(FP), AX; \
panel: \
	MOVQ R13, R14; XORQ R15, R15; \
	SUBQ $1, ahead_panels+96(FP); JLT near; \
	MOVQ ahead_next+88(FP), R15; SHLQ $2, R15; \
	MOVQ ahead_from+72(FP), R14; MOVQ ahead_panel+80(FP), R9; LEAQ (R14)(R9*4), R9; MOVQ R9, ahead_from+72(FP); \
near: \
	MOVQ R13, SI; LEAQ (SI)(R8*2), R12; ADDQ R8, R12; \
	MOVQ k+0(FP), CX; \
	LEAQ (DI)(R10*2), R9; ADDQ R10, R9; \
	PREFETCHT0 (DI); PREFETCHT0 (DI)(R10*1); PREFETCHT0 (DI)(R10*2); \
	PREFETCHT0 (R9); PREFETCHT0 (R9)(R10*1); PREFETCHT0 (R9)(R10*2); \
	VXORPS Y0, Y0, Y0; VXORPS Y1, Y1, Y1; VXORPS Y2, Y2, Y2; VXORPS Y3, Y3, Y3; \
	VXORPS Y4, Y4, Y4; VXORPS Y5, Y5, Y5; VXORPS Y6, Y6, Y6; VXORPS Y7, Y7, Y7; \
	VXORPS Y8, Y8, Y8; VXORPS Y9, Y9, Y9; VXORPS Y10, Y10, Y10; VXORPS Y11, Y11, Y11; \
	SUBQ $4, CX; JLT rest; \
four: \
	PREFETCHT1 (R14); ADDQ R15, R14; \
	FOUR; SUBQ $4, CX; JGE four; \
rest: \
	ADDQ $4, CX; JZ sum; \
one: \
	ONE; DECQ CX; JNZ one; \
sum: \
	TESTQ DX, DX; JZ out; \
	LEAQ 64(DX), R9; \
	ADD2(Y0, Y1); ADD2(Y2, Y3); ADD2(Y4, Y5); ADD2(Y6, Y7); ADD2(Y8, Y9); ADD2(Y10, Y11); \
	MOVQ R9, DX; \
out: \
	LEAQ 64(DI), R9; \
	OUT2(Y0, Y1); OUT2(Y2, Y3); OUT2(Y4, Y5); OUT2(Y6, Y7); OUT2(Y8, Y9); OUT2(Y10, Y11); \
	MOVQ R9, DI; \
	DECQ AX; JNZ panel; \
	VZEROUPPER; \
	RET

// func lineColsAVX2(k int, a *float32, aStep int, b *float32, c *float32, cStep int, add *float32, addStep, panels int, ahead later)
TEXT ·lineColsAVX2(SB), NOSPLIT, $0-112
	LINE(COLS4, COLS1)

// func lineRowsAVX2(k int, a *float32, aStep int, b *float32, c *float32, cStep int, add *float32, addStep, panels int, ahead later)
TEXT ·lineRowsAVX2(SB), NOSPLIT, $0-112
	LINE(ROWS4, ROWS1)
