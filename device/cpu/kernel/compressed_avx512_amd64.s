#include "textflag.h"

#include "pair_avx512.h"

// Matmuls of few rows with weights in quant.CompressedBF16, see compressed.go, and their numbers, for AVX-512 with VBMI2. Four
// elements of K of 32 columns are 192 bytes.
//
//	BX   codes           R12  the next escape, never behind R13
//	CX   groups left     Z16  table     Z17  15 in all bytes
//	SI   A               R8   bytes from row to row, R9 is 3·R8
//	R14  row 4 of A

#define GROUP 192
#define AHEAD 4096

// The words of a group: those of the first pair of K in Z24 and Z25, those of the second in Z26 and Z27. Spoils Z20 to Z23.
// escaped is where escapes are put in the place of what the table has for them, which is seldom.
#define WORDS(escaped, whole) \
	PREFETCHT0 (AHEAD)(BX); PREFETCHT0 (AHEAD+64)(BX); PREFETCHT0 (AHEAD+128)(BX); \
	VMOVDQU64 128(BX), Z22; \
	VPANDQ Z17, Z22, Z23; \
	VPSRLW $4, Z22, Z22; \
	VPANDQ Z17, Z22, Z22; \
	VPCMPEQB Z17, Z23, K1; \
	VPCMPEQB Z17, Z22, K2; \
	VPSHUFB Z23, Z16, Z23; \
	VPSHUFB Z22, Z16, Z22; \
	KORTESTQ K1, K2; \
	JNE escaped; \
whole: \
	VMOVDQU64 (BX), Z20; \
	VMOVDQU64 64(BX), Z21; \
	VPUNPCKLBW Z23, Z20, Z24; \
	VPUNPCKHBW Z23, Z20, Z25; \
	VPUNPCKLBW Z22, Z21, Z26; \
	VPUNPCKHBW Z22, Z21, Z27; \
	ADDQ $GROUP, BX

// Put the next escapes into the bytes of y that k has.
#define ESCAPES(k, y) \
	VMOVDQU8 (R12), Z28; \
	VPEXPANDB Z28, k, y; \
	KMOVQ k, AX; POPCNTQ AX, AX; \
	ADDQ AX, R12; \
	CMPQ R12, R13; CMOVQHI R13, R12

#define ESCAPED(escaped, whole) \
escaped: \
	ESCAPES(K1, Z23); \
	ESCAPES(K2, Z22); \
	JMP whole

// The same as numbers: elements 0 to 3 of K in Z28 and Z29, Z24 and Z25, Z30 and Z31, Z26 and Z27. Z18 is a mask.
#define WIDENED \
	VPANDD Z18, Z24, Z28; VPANDD Z18, Z25, Z29; \
	VPANDD Z18, Z26, Z30; VPANDD Z18, Z27, Z31; \
	VPSLLD $16, Z24, Z24; VPSLLD $16, Z25, Z25; \
	VPSLLD $16, Z26, Z26; VPSLLD $16, Z27, Z27

#define CONSTANTS \
	MOVL $0x0f0f0f0f, AX; VPBROADCASTD AX, Z17; \
	MOVL $0xffff0000, AX; VPBROADCASTD AX, Z18

#define ARGUMENTS \
	MOVQ groups+0(FP), CX; \
	MOVQ w_codes+8(FP), BX; \
	MOVQ w_table+16(FP), AX; VBROADCASTI32X4 (AX), Z16; \
	MOVQ w_escapes+24(FP), R12; \
	MOVQ w_last+32(FP), R13; \
	MOVQ a+40(FP), SI; \
	MOVQ aStep+48(FP), R8; SHLQ $2, R8; LEAQ (R8)(R8*2), R9; LEAQ (SI)(R8*4), R14; \
	MOVQ c+56(FP), DI; \
	MOVQ cStep+64(FP), R10; SHLQ $2, R10; \
	MOVQ add+72(FP), DX; \
	MOVQ addStep+80(FP), R11; SHLQ $2, R11; \
	CONSTANTS

// Multiply one row of A, which is at x, by a group; its sums are in Zc and Zc+1: words, or numbers.
#define PAIRS1(x, c) \
	VBROADCASTSS 0 x, Z28; DP(24, 28, c); DP(25, 28, (c+1)); \
	VBROADCASTSS 4 x, Z29; DP(26, 29, c); DP(27, 29, (c+1))
#define SINGLES1(x, c, d) \
	VFMADD231PS.BCST 0 x, Z28, c; VFMADD231PS.BCST 0 x, Z29, d; \
	VFMADD231PS.BCST 4 x, Z24, c; VFMADD231PS.BCST 4 x, Z25, d; \
	VFMADD231PS.BCST 8 x, Z30, c; VFMADD231PS.BCST 8 x, Z31, d; \
	VFMADD231PS.BCST 12 x, Z26, c; VFMADD231PS.BCST 12 x, Z27, d

#define PAIRROWS1 PAIRS1((SI), 0); ADDQ $8, SI
#define PAIRROWS2 PAIRS1((SI)(R8*1), 2); PAIRROWS1
#define PAIRROWS4 PAIRS1((SI)(R8*2), 4); PAIRS1((SI)(R9*1), 6); PAIRROWS2
#define PAIRROWS8 \
	PAIRS1((R14), 8); PAIRS1((R14)(R8*1), 10); PAIRS1((R14)(R8*2), 12); PAIRS1((R14)(R9*1), 14); \
	ADDQ $8, R14; PAIRROWS4
#define SINGLEROWS1 WIDENED; SINGLES1((SI), Z0, Z1); ADDQ $16, SI
#define SINGLEROWS2 WIDENED; SINGLES1((SI), Z0, Z1); SINGLES1((SI)(R8*1), Z2, Z3); ADDQ $16, SI
#define SINGLEROWS4 \
	WIDENED; SINGLES1((SI), Z0, Z1); SINGLES1((SI)(R8*1), Z2, Z3); \
	SINGLES1((SI)(R8*2), Z4, Z5); SINGLES1((SI)(R9*1), Z6, Z7); ADDQ $16, SI
#define SINGLEROWS8 \
	SINGLEROWS4; SINGLES1((R14), Z8, Z9); SINGLES1((R14)(R8*1), Z10, Z11); \
	SINGLES1((R14)(R8*2), Z12, Z13); SINGLES1((R14)(R9*1), Z14, Z15); ADDQ $16, R14

#define ZERO2(c, d) VPXORQ c, c, c; VPXORQ d, d, d
#define ZEROS1 ZERO2(Z0, Z1)
#define ZEROS2 ZEROS1; ZERO2(Z2, Z3)
#define ZEROS4 ZEROS2; ZERO2(Z4, Z5); ZERO2(Z6, Z7)
#define ZEROS8 ZEROS4; ZERO2(Z8, Z9); ZERO2(Z10, Z11); ZERO2(Z12, Z13); ZERO2(Z14, Z15)

#define ADD2(c, d) VADDPS (DX), c, c; VADDPS 64(DX), d, d; ADDQ R11, DX
#define ADDS1 ADD2(Z0, Z1)
#define ADDS2 ADDS1; ADD2(Z2, Z3)
#define ADDS4 ADDS2; ADD2(Z4, Z5); ADD2(Z6, Z7)
#define ADDS8 ADDS4; ADD2(Z8, Z9); ADD2(Z10, Z11); ADD2(Z12, Z13); ADD2(Z14, Z15)

#define PUT2(c, d) VMOVUPS c, (DI); VMOVUPS d, 64(DI); ADDQ R10, DI
#define PUTS1 PUT2(Z0, Z1)
#define PUTS2 PUTS1; PUT2(Z2, Z3)
#define PUTS4 PUTS2; PUT2(Z4, Z5); PUT2(Z6, Z7)
#define PUTS8 PUTS4; PUT2(Z8, Z9); PUT2(Z10, Z11); PUT2(Z12, Z13); PUT2(Z14, Z15)

#define MULTIPLY(ZEROS, ROWS, ADDS, PUTS) \
	ARGUMENTS; \
	ZEROS; \
group: \
	WORDS(escaped, whole); \
	ROWS; \
	DECQ CX; \
	JNZ group; \
	TESTQ DX, DX; JZ put; \
	ADDS; \
put: \
	PUTS; \
	VZEROUPPER; \
	RET; \
	ESCAPED(escaped, whole)

// The first eight of many rows, which also write the words at DX for the others. The addend comes to DX at the end.
#define FIRST(ZEROS, ROWS, ADDS, PUTS) \
	ARGUMENTS; \
	MOVQ words+88(FP), DX; \
	ZEROS; \
group: \
	WORDS(escaped, whole); \
	VMOVDQU64 Z24, (DX); VMOVDQU64 Z25, 64(DX); VMOVDQU64 Z26, 128(DX); VMOVDQU64 Z27, 192(DX); \
	ADDQ $256, DX; \
	ROWS; \
	DECQ CX; \
	JNZ group; \
	MOVQ add+72(FP), DX; \
	TESTQ DX, DX; JZ put; \
	ADDS; \
put: \
	PUTS; \
	VZEROUPPER; \
	RET; \
	ESCAPED(escaped, whole)

#define DECODE(PUT) \
	MOVQ dst+0(FP), DI; \
	MOVQ step+8(FP), R10; SHLQ $2, R10; \
	MOVQ half+16(FP), R11; SHLQ $2, R11; \
	MOVQ groups+24(FP), CX; \
	MOVQ w_codes+32(FP), BX; \
	MOVQ w_table+40(FP), AX; VBROADCASTI32X4 (AX), Z16; \
	MOVQ w_escapes+48(FP), R12; \
	MOVQ w_last+56(FP), R13; \
	CONSTANTS; \
group: \
	WORDS(escaped, whole); \
	PUT; \
	DECQ CX; \
	JNZ group; \
	VZEROUPPER; \
	RET; \
	ESCAPED(escaped, whole)

#define PUTHALVES(c, d) VMOVUPS c, (DI); VMOVUPS d, (DI)(R11*1); ADDQ R10, DI
#define PUTWORDS PUTHALVES(Z24, Z25); PUTHALVES(Z26, Z27)
#define PUTNUMBERS WIDENED; PUTHALVES(Z28, Z29); PUTHALVES(Z24, Z25); PUTHALVES(Z30, Z31); PUTHALVES(Z26, Z27)

// func compressedPairs1AVX512(groups int, w compressedAt, a *float32, aStep int, c *float32, cStep int, add *float32, addStep int)
TEXT ·compressedPairs1AVX512(SB), NOSPLIT, $0-88
	MULTIPLY(ZEROS1, PAIRROWS1, ADDS1, PUTS1)

// func compressedPairs2AVX512(groups int, w compressedAt, a *float32, aStep int, c *float32, cStep int, add *float32, addStep int)
TEXT ·compressedPairs2AVX512(SB), NOSPLIT, $0-88
	MULTIPLY(ZEROS2, PAIRROWS2, ADDS2, PUTS2)

// func compressedPairs4AVX512(groups int, w compressedAt, a *float32, aStep int, c *float32, cStep int, add *float32, addStep int)
TEXT ·compressedPairs4AVX512(SB), NOSPLIT, $0-88
	MULTIPLY(ZEROS4, PAIRROWS4, ADDS4, PUTS4)

// func compressedPairs8AVX512(groups int, w compressedAt, a *float32, aStep int, c *float32, cStep int, add *float32, addStep int)
TEXT ·compressedPairs8AVX512(SB), NOSPLIT, $0-88
	MULTIPLY(ZEROS8, PAIRROWS8, ADDS8, PUTS8)

// func compressedFirst8AVX512(groups int, w compressedAt, a *float32, aStep int, c *float32, cStep int, add *float32, addStep int, words *float32)
TEXT ·compressedFirst8AVX512(SB), NOSPLIT, $0-96
	FIRST(ZEROS8, PAIRROWS8, ADDS8, PUTS8)

// func compressedSingles1AVX512(groups int, w compressedAt, a *float32, aStep int, c *float32, cStep int, add *float32, addStep int)
TEXT ·compressedSingles1AVX512(SB), NOSPLIT, $0-88
	MULTIPLY(ZEROS1, SINGLEROWS1, ADDS1, PUTS1)

// func compressedSingles2AVX512(groups int, w compressedAt, a *float32, aStep int, c *float32, cStep int, add *float32, addStep int)
TEXT ·compressedSingles2AVX512(SB), NOSPLIT, $0-88
	MULTIPLY(ZEROS2, SINGLEROWS2, ADDS2, PUTS2)

// func compressedSingles4AVX512(groups int, w compressedAt, a *float32, aStep int, c *float32, cStep int, add *float32, addStep int)
TEXT ·compressedSingles4AVX512(SB), NOSPLIT, $0-88
	MULTIPLY(ZEROS4, SINGLEROWS4, ADDS4, PUTS4)

// func compressedSingles8AVX512(groups int, w compressedAt, a *float32, aStep int, c *float32, cStep int, add *float32, addStep int)
TEXT ·compressedSingles8AVX512(SB), NOSPLIT, $0-88
	MULTIPLY(ZEROS8, SINGLEROWS8, ADDS8, PUTS8)

// func compressedWordsAVX512(dst *float32, step, half, groups int, w compressedAt)
TEXT ·compressedWordsAVX512(SB), NOSPLIT, $0-64
	DECODE(PUTWORDS)

// func compressedNumbersAVX512(dst *float32, step, half, groups int, w compressedAt)
TEXT ·compressedNumbersAVX512(SB), NOSPLIT, $0-64
	DECODE(PUTNUMBERS)
