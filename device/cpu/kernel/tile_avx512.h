// What matmul tiles of f32 and of words of two bf16 share on AVX-512: tile_avx512_amd64.s says which registers have what.

// Load the row of B at x: all of it, only the columns that exist, or those of its first half.
// A row of an unpacked B is also prefetched, since CPUs do not predict such strides.
#define B_FULL(x) VMOVUPS 0 x, Z24; VMOVUPS 64 x, Z25; VMOVUPS 128 x, Z26; VMOVUPS 192 x, Z27
#define B_AHEAD   PREFETCHT0 (BX)(R9*8); PREFETCHT0 64(BX)(R9*8); PREFETCHT0 128(BX)(R9*8); PREFETCHT0 192(BX)(R9*8)
#define B_HALF    VMOVUPS.Z (BX), K1, Z24; VMOVUPS.Z 64(BX), K2, Z25
#define B_MASKED  B_HALF; VMOVUPS.Z 128(BX), K3, Z26; VMOVUPS.Z 192(BX), K4, Z27

// The next k of A stored column by column, or row by row.
#define COL_NEXT ADDQ R8, SI; ADDQ R9, BX
#define ROW_NEXT ADDQ $4, SI; ADDQ $4, R12; ADDQ R9, BX

// Four k, and the pointers moved on. There are as few other instructions as possible: where
// another thread shares the core, these decide the speed, not the multiply-adds.
#define COLS4(STEP) \
	B_FULL((BX)); STEP((SI)); B_FULL((BX)(R9*1)); STEP((SI)(R8*1)); LEAQ (BX)(R9*2), BX; LEAQ (SI)(R8*2), SI; \
	B_FULL((BX)); STEP((SI)); B_FULL((BX)(R9*1)); STEP((SI)(R8*1)); LEAQ (BX)(R9*2), BX; LEAQ (SI)(R8*2), SI
#define ROWS4(STEP) \
	B_FULL((BX)); STEP(0); B_FULL((BX)(R9*1)); STEP(4); LEAQ (BX)(R9*2), BX; \
	B_FULL((BX)); STEP(8); B_FULL((BX)(R9*1)); STEP(12); LEAQ (BX)(R9*2), BX; ADDQ $16, SI; ADDQ $16, R12
#define ZERO_ROW(c0, c1, c2, c3) VPXORD c0, c0, c0; VPXORD c1, c1, c1; VPXORD c2, c2, c2; VPXORD c3, c3, c3
#define ZERO1 ZERO_ROW(Z0, Z1, Z2, Z3)
#define ZERO2 ZERO1; ZERO_ROW(Z4, Z5, Z6, Z7)
#define ZERO4 ZERO2; ZERO_ROW(Z8, Z9, Z10, Z11); ZERO_ROW(Z12, Z13, Z14, Z15)
#define ZERO6 ZERO4; ZERO_ROW(Z16, Z17, Z18, Z19); ZERO_ROW(Z20, Z21, Z22, Z23)
#define ADD_ROW(c0, c1, c2, c3) \
	VMOVUPS.Z (DX), K1, Z24; VMOVUPS.Z 64(DX), K2, Z25; VMOVUPS.Z 128(DX), K3, Z26; VMOVUPS.Z 192(DX), K4, Z27; \
	VADDPS Z24, c0, c0; VADDPS Z25, c1, c1; VADDPS Z26, c2, c2; VADDPS Z27, c3, c3; ADDQ R11, DX
#define ADD1 ADD_ROW(Z0, Z1, Z2, Z3)
#define ADD2 ADD1; ADD_ROW(Z4, Z5, Z6, Z7)
#define ADD4 ADD2; ADD_ROW(Z8, Z9, Z10, Z11); ADD_ROW(Z12, Z13, Z14, Z15)
#define ADD6 ADD4; ADD_ROW(Z16, Z17, Z18, Z19); ADD_ROW(Z20, Z21, Z22, Z23)
#define OUT_ROW(c0, c1, c2, c3) \
	VMOVUPS c0, K1, (DI); VMOVUPS c1, K2, 64(DI); VMOVUPS c2, K3, 128(DI); VMOVUPS c3, K4, 192(DI); ADDQ R10, DI
#define OUT1 OUT_ROW(Z0, Z1, Z2, Z3)
#define OUT2 OUT1; OUT_ROW(Z4, Z5, Z6, Z7)
#define OUT4 OUT2; OUT_ROW(Z8, Z9, Z10, Z11); OUT_ROW(Z12, Z13, Z14, Z15)
#define OUT6 OUT4; OUT_ROW(Z16, Z17, Z18, Z19); OUT_ROW(Z20, Z21, Z22, Z23)

// Prefetch a row of C, which is needed at the end of the tile, and the same row of the tile
// below, which is needed when all tiles to the right of this one are done.
#define FETCH_ROW \
	PREFETCHT0 (DX); PREFETCHT0 64(DX); PREFETCHT0 128(DX); PREFETCHT0 192(DX); ADDQ R10, DX; \
	PREFETCHT1 (R14); PREFETCHT1 64(R14); PREFETCHT1 128(R14); PREFETCHT1 192(R14); ADDQ R10, R14

// Arguments of every tile, see tileFunc in tile.go. Steps come in elements.
#define ARGUMENTS \
	MOVQ $-1, AX; MOVQ $64, CX; SUBQ cols+56(FP), CX; SHRQ CX, AX; \
	KMOVW AX, K1; SHRQ $16, AX; KMOVW AX, K2; SHRQ $16, AX; KMOVW AX, K3; SHRQ $16, AX; KMOVW AX, K4; \
	MOVQ a+8(FP), SI; MOVQ aStep+16(FP), R8; SHLQ $2, R8; LEAQ (SI)(R8*2), R12; ADDQ R8, R12; \
	MOVQ b+24(FP), BX; MOVQ bStep+32(FP), R9; SHLQ $2, R9; \
	MOVQ c+40(FP), DI; MOVQ cStep+48(FP), R10; SHLQ $2, R10; MOVQ DI, DX; LEAQ (DI)(R10*4), R14; LEAQ (R14)(R10*2), R14; \
	MOVQ ahead_from+80(FP), R11; MOVQ ahead_pair+88(FP), R13; SHLQ $2, R13; TESTQ R11, R11; CMOVQEQ SI, R11; \
	MOVQ k+0(FP), CX; MOVQ cols+56(FP), AX

// With packed columns k runs in groups of 16: each group prefetches two cache lines for later tiles, of
// which LATER finds the next, and the last groups also prefetch C.
#define TILE_LATER MOVQ ahead_next+96(FP), AX; LEAQ (R11)(AX*4), R11
#define PACKED_COLUMNS(LATER, FOUR, ONE, NEXT) \
group: \
	SUBQ $16, CX; JLT rest; \
	PREFETCHT1 (R11); PREFETCHT1 (R11)(R13*1); \
	LATER; \
	MOVQ $4, AX; \
	CMPQ CX, $(6*16); JGT full; \
	FETCH_ROW; \
full: \
	FOUR; DECQ AX; JNZ full; \
	JMP group; \
rest: \
	ADDQ $16, CX; JZ sum; \
last: \
	B_FULL((BX)); ONE; NEXT; DECQ CX; JNZ last; \
sum:
