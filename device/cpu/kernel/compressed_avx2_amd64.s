#include "textflag.h"

// Matmuls of one and of two rows with weights in quant.CompressedBF16, see compressed.go, and their numbers, for AVX2. Four
// elements of K of 32 columns are 192 bytes: a half of their lower bytes is those of columns 0 to 7 and 16 to 23, or of 8 to 15
// and 24 to 31.
//
//	BX   codes           R12  the next escape, never behind R13
//	CX   groups left     Y14  table     Y15  15 in all bytes     Y13  a mask of upper halves
//	SI   A               R8   bytes from row to row
//
// 128 bytes of the stack are for upper bytes: those of the first pair of K, then those of the second.

#define GROUP 192
#define AHEAD 4096

DATA fifteens<>+0(SB)/4, $0x0f0f0f0f
GLOBL fifteens<>(SB), RODATA|NOPTR, $4
DATA upper<>+0(SB)/4, $0xffff0000
GLOBL upper<>(SB), RODATA|NOPTR, $4

// The upper bytes of a group: those of the first pair of K in Y8 and Y10, those of the second in Y9 and Y11. Spoils Y12 and Y13, and AX.
// escaped is where escapes are put in the place of what the table has for them, which is seldom.
#define UPPERS(escaped, whole) \
	PREFETCHT0 (AHEAD)(BX); PREFETCHT0 (AHEAD+64)(BX); PREFETCHT0 (AHEAD+128)(BX); \
	VMOVDQU 128(BX), Y9; \
	VMOVDQU 160(BX), Y11; \
	VPAND Y15, Y9, Y8; \
	VPAND Y15, Y11, Y10; \
	VPSRLW $4, Y9, Y9; \
	VPSRLW $4, Y11, Y11; \
	VPAND Y15, Y9, Y9; \
	VPAND Y15, Y11, Y11; \
	VPMAXUB Y8, Y9, Y12; \
	VPMAXUB Y10, Y11, Y13; \
	VPMAXUB Y12, Y13, Y12; \
	VPCMPEQB Y15, Y12, Y12; \
	VPMOVMSKB Y12, AX; \
	TESTL AX, AX; \
	JNE escaped; \
	LOOKUP; \
whole: \

#define LOOKUP \
	VPSHUFB Y8, Y14, Y8; \
	VPSHUFB Y9, Y14, Y9; \
	VPSHUFB Y10, Y14, Y10; \
	VPSHUFB Y11, Y14, Y11

// Which codes of a pair of K are of escapes, a bit for each place.
#define PLACES(y, z, mask) \
	VPCMPEQB Y15, y, Y12; VPMOVMSKB Y12, mask; \
	VPCMPEQB Y15, z, Y13; VPMOVMSKB Y13, R9; \
	SHLQ $32, R9; ORQ R9, mask

// Put the next escapes into the bytes at o of the stack that mask has.
#define ESCAPES(o, mask, next, end) \
	TESTQ mask, mask; \
	JZ end; \
next: \
	BSFQ mask, R9; \
	MOVB (R12), R15; \
	INCQ R12; \
	MOVB R15, o(SP)(R9*1); \
	LEAQ -1(mask), R15; \
	ANDQ R15, mask; \
	JNZ next; \
end: \
	CMPQ R12, R13; CMOVQHI R13, R12

#define ESCAPED(escaped, whole) \
escaped: \
	PLACES(Y8, Y10, AX); \
	PLACES(Y9, Y11, R14); \
	LOOKUP; \
	VMOVDQU Y8, 0(SP); VMOVDQU Y10, 32(SP); \
	VMOVDQU Y9, 64(SP); VMOVDQU Y11, 96(SP); \
	ESCAPES(0, AX, next1, end1); \
	ESCAPES(64, R14, next2, end2); \
	VMOVDQU 0(SP), Y8; VMOVDQU 32(SP), Y10; \
	VMOVDQU 64(SP), Y9; VMOVDQU 96(SP), Y11; \
	JMP whole

#define CONSTANTS \
	VPBROADCASTD fifteens<>(SB), Y15

#define ARGUMENTS \
	MOVQ groups+0(FP), CX; \
	MOVQ w_codes+8(FP), BX; \
	MOVQ w_table+16(FP), AX; VBROADCASTI128 (AX), Y14; \
	MOVQ w_escapes+24(FP), R12; \
	MOVQ w_last+32(FP), R13; \
	MOVQ a+40(FP), SI; \
	MOVQ aStep+48(FP), R8; SHLQ $2, R8; \
	MOVQ c+56(FP), DI; \
	MOVQ cStep+64(FP), R10; SHLQ $2, R10; \
	MOVQ add+72(FP), DX; \
	MOVQ addStep+80(FP), R11; SHLQ $2, R11; \
	CONSTANTS

// Words of 16 columns: in l those of the eight first ones, in h those of the others.
#define WORDS(lower, upper, l, h) VMOVDQU lower, h; VPUNPCKLBW upper, h, l; VPUNPCKHBW upper, h, h

// Multiply a pair of K of 16 columns by elements of a row in Y6 and Y7: the first of the pair is the upper half of a word.
#define PAIR1(lower, upper, c, d) \
	WORDS(lower, upper, Y4, Y5); \
	VPAND Y13, Y4, Y12; VFMADD231PS Y12, Y6, c; \
	VPAND Y13, Y5, Y12; VFMADD231PS Y12, Y6, d; \
	VPSLLD $16, Y4, Y4; VFMADD231PS Y4, Y7, c; \
	VPSLLD $16, Y5, Y5; VFMADD231PS Y5, Y7, d

#define ROWS1 \
	VPBROADCASTD upper<>(SB), Y13; \
	VBROADCASTSS (SI), Y6; VBROADCASTSS 4(SI), Y7; \
	PAIR1((BX), Y8, Y0, Y2); PAIR1(32(BX), Y10, Y1, Y3); \
	VBROADCASTSS 8(SI), Y6; VBROADCASTSS 12(SI), Y7; \
	PAIR1(64(BX), Y9, Y0, Y2); PAIR1(96(BX), Y11, Y1, Y3); \
	ADDQ $16, SI

// The same of two rows, whose elements are in Y8 and Y9, and in Y10 and Y11; upper bytes come from the stack.
#define PAIR2(lower, upper, c, d, e, f) \
	VMOVDQU lower, Y14; VPUNPCKLBW upper, Y14, Y12; VPUNPCKHBW upper, Y14, Y14; \
	VPAND Y13, Y12, Y15; VFMADD231PS Y15, Y8, c; VFMADD231PS Y15, Y10, e; \
	VPAND Y13, Y14, Y15; VFMADD231PS Y15, Y8, d; VFMADD231PS Y15, Y10, f; \
	VPSLLD $16, Y12, Y12; VFMADD231PS Y12, Y9, c; VFMADD231PS Y12, Y11, e; \
	VPSLLD $16, Y14, Y14; VFMADD231PS Y14, Y9, d; VFMADD231PS Y14, Y11, f

#define ROWS2 \
	VMOVDQU Y8, 0(SP); VMOVDQU Y10, 32(SP); VMOVDQU Y9, 64(SP); VMOVDQU Y11, 96(SP); \
	VPBROADCASTD upper<>(SB), Y13; \
	VBROADCASTSS (SI), Y8; VBROADCASTSS 4(SI), Y9; VBROADCASTSS (SI)(R8*1), Y10; VBROADCASTSS 4(SI)(R8*1), Y11; \
	PAIR2((BX), 0(SP), Y0, Y2, Y4, Y6); PAIR2(32(BX), 32(SP), Y1, Y3, Y5, Y7); \
	VBROADCASTSS 8(SI), Y8; VBROADCASTSS 12(SI), Y9; VBROADCASTSS 8(SI)(R8*1), Y10; VBROADCASTSS 12(SI)(R8*1), Y11; \
	PAIR2(64(BX), 64(SP), Y0, Y2, Y4, Y6); PAIR2(96(BX), 96(SP), Y1, Y3, Y5, Y7); \
	MOVQ w_table+16(FP), AX; VBROADCASTI128 (AX), Y14; \
	CONSTANTS; \
	ADDQ $16, SI

#define ZEROS1 VXORPS Y0, Y0, Y0; VXORPS Y1, Y1, Y1; VXORPS Y2, Y2, Y2; VXORPS Y3, Y3, Y3
#define ZEROS2 ZEROS1; VXORPS Y4, Y4, Y4; VXORPS Y5, Y5, Y5; VXORPS Y6, Y6, Y6; VXORPS Y7, Y7, Y7
#define ADD4(a, b, c, d) VADDPS (DX), a, a; VADDPS 32(DX), b, b; VADDPS 64(DX), c, c; VADDPS 96(DX), d, d; ADDQ R11, DX
#define ADDS1 ADD4(Y0, Y1, Y2, Y3)
#define ADDS2 ADDS1; ADD4(Y4, Y5, Y6, Y7)
#define PUT4(a, b, c, d) VMOVUPS a, (DI); VMOVUPS b, 32(DI); VMOVUPS c, 64(DI); VMOVUPS d, 96(DI); ADDQ R10, DI
#define PUTS1 PUT4(Y0, Y1, Y2, Y3)
#define PUTS2 PUTS1; PUT4(Y4, Y5, Y6, Y7)

#define MULTIPLY(ZEROS, ROWS, ADDS, PUTS) \
	ARGUMENTS; \
	ZEROS; \
group: \
	UPPERS(escaped, whole); \
	ROWS; \
	ADDQ $GROUP, BX; \
	DECQ CX; \
	JNZ group; \
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
	MOVQ w_table+40(FP), AX; VBROADCASTI128 (AX), Y14; \
	MOVQ w_escapes+48(FP), R12; \
	MOVQ w_last+56(FP), R13; \
	CONSTANTS; \
	VPBROADCASTD upper<>(SB), Y7; \
group: \
	UPPERS(escaped, whole); \
	PUT; \
	ADDQ $GROUP, BX; \
	DECQ CX; \
	JNZ group; \
	VZEROUPPER; \
	RET; \
	ESCAPED(escaped, whole)

// Lines that are written soon are fetched: those of a slab of numbers come from the second-level cache.
#define PUTHALVES(a, b, c, d) PREFETCHT0 512(DI); PREFETCHT0 512(DI)(R11*1); VMOVUPS a, (DI); VMOVUPS b, 32(DI); VMOVUPS c, (DI)(R11*1); VMOVUPS d, 32(DI)(R11*1); ADDQ R10, DI
#define PUTWORDS2(o, y, z) \
	WORDS(o(BX), y, Y0, Y2); WORDS(32+o(BX), z, Y1, Y3); \
	PUTHALVES(Y0, Y1, Y2, Y3)
#define PUTWORDS PUTWORDS2(0, Y8, Y10); PUTWORDS2(64, Y9, Y11)
#define PUTNUMBERS2(o, y, z) \
	WORDS(o(BX), y, Y0, Y2); WORDS(32+o(BX), z, Y1, Y3); \
	VPAND Y7, Y0, Y4; VPAND Y7, Y1, Y5; VPAND Y7, Y2, Y6; VPAND Y7, Y3, Y12; \
	PUTHALVES(Y4, Y5, Y6, Y12); \
	VPSLLD $16, Y0, Y0; VPSLLD $16, Y1, Y1; VPSLLD $16, Y2, Y2; VPSLLD $16, Y3, Y3; \
	PUTHALVES(Y0, Y1, Y2, Y3)
#define PUTNUMBERS PUTNUMBERS2(0, Y8, Y10); PUTNUMBERS2(64, Y9, Y11)

// func compressedSingles1AVX2(groups int, w compressedAt, a *float32, aStep int, c *float32, cStep int, add *float32, addStep int)
TEXT ·compressedSingles1AVX2(SB), NOSPLIT, $128-88
	MULTIPLY(ZEROS1, ROWS1, ADDS1, PUTS1)

// func compressedSingles2AVX2(groups int, w compressedAt, a *float32, aStep int, c *float32, cStep int, add *float32, addStep int)
TEXT ·compressedSingles2AVX2(SB), NOSPLIT, $128-88
	MULTIPLY(ZEROS2, ROWS2, ADDS2, PUTS2)

// func compressedWordsAVX2(dst *float32, step, half, groups int, w compressedAt)
TEXT ·compressedWordsAVX2(SB), NOSPLIT, $128-64
	DECODE(PUTWORDS)

// func compressedNumbersAVX2(dst *float32, step, half, groups int, w compressedAt)
TEXT ·compressedNumbersAVX2(SB), NOSPLIT, $128-64
	DECODE(PUTNUMBERS)
