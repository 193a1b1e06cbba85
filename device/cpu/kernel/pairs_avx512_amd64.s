#include "funcdata.h"
#include "textflag.h"

#include "pair_avx512.h"
#include "tile_avx512.h"

// Matmul tiles of words, two bf16 each, for AVX-512 BF16: see pairs.go, and tile_avx512_amd64.s, whose
// tiles and registers these have. Up to 6 rows of 64 columns stay in registers while k runs: row r in
// Z(4r) to Z(4r+3). The current row of B is in Z24 to Z27.
//
//	SI  A            R8   bytes from one k to the next (cols) or row to row (rows)
//	BX  B            R9   bytes from one k to the next
//	DI  C            R10  bytes from row to row
//	DX  C to fetch, and R14 below it; then DX is the addend, R11 its bytes from row to row
//	R11 line to fetch for later tiles, R13 to the second one
//	CX  k left       K1 to K4  columns that exist

// acc += a * row of B, for one row of A, whose sums are Zc on.
#define DP2(at, c) VBROADCASTSS at, Z28; DP(24, 28, c); DP(25, 28, (c+1))
#define DP4(at, c) DP2(at, c); DP(26, 28, (c+2)); DP(27, 28, (c+3))

// One k for h rows when A is stored column by column (packed panels), and this column at
// x: whole rows of B, or the half.
#define COL1(x) DP4(0 x, 0)
#define COL2(x) COL1(x); DP4(4 x, 4)
#define COL4(x) COL2(x); DP4(8 x, 8); DP4(12 x, 12)
#define COL6(x) COL4(x); DP4(16 x, 16); DP4(20 x, 20)
#define COL1_HALF(o) DP2((o)(SI), 0)
#define COL2_HALF(o) COL1_HALF(o); DP2((o+4)(SI), 4)
#define COL4_HALF(o) COL2_HALF(o); DP2((o+8)(SI), 8); DP2((o+12)(SI), 12)
#define COL6_HALF(o) COL4_HALF(o); DP2((o+16)(SI), 16); DP2((o+20)(SI), 20)

// The same when A is stored row by row, and this column at byte o of the rows. Rows 0 to
// 2 are at SI, 3 to 5 at R12.
#define ROW1(o) DP4(o(SI), 0)
#define ROW2(o) ROW1(o); DP4(o(SI)(R8*1), 4)
#define ROW4(o) ROW2(o); DP4(o(SI)(R8*2), 8); DP4(o(R12), 12)
#define ROW6(o) ROW4(o); DP4(o(R12)(R8*1), 16); DP4(o(R12)(R8*2), 20)
#define ROW1_HALF(o) DP2(o(SI), 0)
#define ROW2_HALF(o) ROW1_HALF(o); DP2(o(SI)(R8*1), 4)
#define ROW4_HALF(o) ROW2_HALF(o); DP2(o(SI)(R8*2), 8); DP2(o(R12), 12)
#define ROW6_HALF(o) ROW4_HALF(o); DP2(o(R12)(R8*1), 16); DP2(o(R12)(R8*2), 20)

// Four k of 32 columns of an interleaved weight, which lie one behind the other, from memory.
#define AHEAD 4096
#define TOGETHER(p, HALF) \
	VMOVUPS (128*p)(BX), Z24; VMOVUPS (128*p+64)(BX), Z25; \
	PREFETCHT0 (AHEAD+128*p)(BX); PREFETCHT0 (AHEAD+128*p+64)(BX); \
	HALF((4*p))
#define TOGETHER4(HALF) TOGETHER(0, HALF); TOGETHER(1, HALF); TOGETHER(2, HALF); TOGETHER(3, HALF); ADDQ $512, BX; ADDQ $16, SI; ADDQ $16, R12

#define NOTHING

// INTERLEAVED goes to the loop of interleaved weights where they are some, MULTIPLIED is that loop.
#define INTERLEAVED CMPQ R9, $128; JEQ together
#define MULTIPLIED(HALF) \
together: \
	SUBQ $4, CX; JLT few; \
	TOGETHER4(HALF); \
	JMP together; \
few: \
	ADDQ $4, CX; JZ sum; \
	JMP half;

// A tile: with packed columns, with whole rows of a B that is not packed, or with some of the columns.
#define TILE(ZERO, FOUR, ONE, HALF, NEXT, ADD, OUT, CHOOSE, OTHER) \
	ARGUMENTS; \
	ZERO; \
	TESTQ CX, CX; JZ sum; \
	CMPQ AX, $64; JEQ whole; \
	CMPQ AX, $32; JGT masked; \
	JLT half; \
	CHOOSE; \
half: \
	B_HALF; HALF(0); NEXT; DECQ CX; JNZ half; \
	JMP sum; \
	OTHER \
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

// Call a function of streams, see half.go, with numbers below 2^-126 counted as zero: bits 15 and 6 of the control
// word. No other Go code runs on this thread meanwhile, since assembly is never preempted.
#define FLUSHED(F) \
	MOVQ k+0(FP), AX; MOVQ AX, 0(SP); \
	MOVQ s+8(FP), AX; MOVQ AX, 8(SP); \
	MOVQ bStep+16(FP), AX; MOVQ AX, 16(SP); \
	MOVQ aStep+24(FP), AX; MOVQ AX, 24(SP); \
	MOVQ sumStep+32(FP), AX; MOVQ AX, 32(SP); \
	MOVQ later+40(FP), AX; MOVQ AX, 40(SP); \
	STMXCSR 48(SP); \
	MOVL 48(SP), AX; ORL $0x8040, AX; MOVL AX, 52(SP); \
	LDMXCSR 52(SP); \
	CALL F(SB); \
	LDMXCSR 48(SP); \
	RET

TEXT ·pairCols6AVX512(SB), NOSPLIT, $0-104
	TILE(ZERO6, COLS4(COL6), COL6((SI)), COL6_HALF, COL_NEXT, ADD6, OUT6, NOTHING, NOTHING)

TEXT ·pairCols4AVX512(SB), NOSPLIT, $0-104
	TILE(ZERO4, COLS4(COL4), COL4((SI)), COL4_HALF, COL_NEXT, ADD4, OUT4, NOTHING, NOTHING)

TEXT ·pairCols2AVX512(SB), NOSPLIT, $0-104
	TILE(ZERO2, COLS4(COL2), COL2((SI)), COL2_HALF, COL_NEXT, ADD2, OUT2, NOTHING, NOTHING)

TEXT ·pairCols1AVX512(SB), NOSPLIT, $0-104
	TILE(ZERO1, COLS4(COL1), COL1((SI)), COL1_HALF, COL_NEXT, ADD1, OUT1, NOTHING, NOTHING)

TEXT ·pairRows6AVX512(SB), NOSPLIT, $0-104
	TILE(ZERO6, ROWS4(ROW6), ROW6(0), ROW6_HALF, ROW_NEXT, ADD6, OUT6, INTERLEAVED, MULTIPLIED(ROW6_HALF))

TEXT ·pairRows4AVX512(SB), NOSPLIT, $0-104
	TILE(ZERO4, ROWS4(ROW4), ROW4(0), ROW4_HALF, ROW_NEXT, ADD4, OUT4, INTERLEAVED, MULTIPLIED(ROW4_HALF))

TEXT ·pairRows2AVX512(SB), NOSPLIT, $0-104
	TILE(ZERO2, ROWS4(ROW2), ROW2(0), ROW2_HALF, ROW_NEXT, ADD2, OUT2, INTERLEAVED, MULTIPLIED(ROW2_HALF))

TEXT ·pairRows1AVX512(SB), NOSPLIT, $0-104
	TILE(ZERO1, ROWS4(ROW1), ROW1(0), ROW1_HALF, ROW_NEXT, ADD1, OUT1, INTERLEAVED, MULTIPLIED(ROW1_HALF))

// func swapPairsAVX512(dst *float32, src *uint16, n int)
// The halves of n words change places; dst may be src.
TEXT ·swapPairsAVX512(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
	SUBQ $64, CX
	JLT rest
four:
	VPROLD $16, (SI), Z0
	VPROLD $16, 64(SI), Z1
	VPROLD $16, 128(SI), Z2
	VPROLD $16, 192(SI), Z3
	VMOVDQU32 Z0, (DI)
	VMOVDQU32 Z1, 64(DI)
	VMOVDQU32 Z2, 128(DI)
	VMOVDQU32 Z3, 192(DI)
	ADDQ $256, SI
	ADDQ $256, DI
	SUBQ $64, CX
	JGE four
rest:
	ADDQ $64, CX
	JZ done
one:
	MOVL (SI), AX
	ROLL $16, AX
	MOVL AX, (DI)
	ADDQ $4, SI
	ADDQ $4, DI
	DECQ CX
	JNZ one
done:
	VZEROUPPER
	RET

// Words of 16 columns, at o bytes of the rows of words, out of two rows of elements.
#define ZIP(o, mask, a, b) \
	VPMOVZXWD.Z (o/2)(DX), mask, a; VPMOVZXWD.Z (o/2)(DX)(R9*1), mask, b; \
	VPSLLD $16, a, a; VPORD a, b, a; VMOVDQU32 a, mask, o(DI)

// func zipPairsAVX512(dst *float32, step int, src *uint16, srcStep, k, width int)
// dst[p*step+j] = src[2*p*srcStep+j]<<16 | src[(2*p+1)*srcStep+j] for p < k, j < width <= 64.
TEXT ·zipPairsAVX512(SB), NOSPLIT, $0-48
	MOVQ dst+0(FP), DI
	MOVQ step+8(FP), R8
	MOVQ src+16(FP), DX
	MOVQ srcStep+24(FP), R9
	MOVQ k+32(FP), R12
	SHLQ $2, R8
	SHLQ $1, R9
	MOVQ $-1, AX
	MOVQ $64, CX
	SUBQ width+40(FP), CX
	SHRQ CX, AX
	KMOVW AX, K1
	SHRQ $16, AX
	KMOVW AX, K2
	SHRQ $16, AX
	KMOVW AX, K3
	SHRQ $16, AX
	KMOVW AX, K4
row:
	PREFETCHT0 (DX)(R9*8)
	PREFETCHT0 64(DX)(R9*8)
	ZIP(0, K1, Z0, Z1)
	ZIP(64, K2, Z2, Z3)
	LEAQ (DX)(R9*1), CX
	PREFETCHT0 (CX)(R9*8)
	PREFETCHT0 64(CX)(R9*8)
	ZIP(128, K3, Z4, Z5)
	ZIP(192, K4, Z6, Z7)
	LEAQ (DX)(R9*2), DX
	ADDQ R8, DI
	DECQ R12
	JNZ row
	VZEROUPPER
	RET

// func flushedStreams1BF16AVX2(k int, s *streams, bStep, aStep, sumStep int, later uintptr)
TEXT ·flushedStreams1BF16AVX2(SB), 0, $56-48
	NO_LOCAL_POINTERS
	FLUSHED(·streams1BF16AVX2)

// func flushedStreams2BF16AVX2(k int, s *streams, bStep, aStep, sumStep int, later uintptr)
TEXT ·flushedStreams2BF16AVX2(SB), 0, $56-48
	NO_LOCAL_POINTERS
	FLUSHED(·streams2BF16AVX2)
