#include "textflag.h"

// Matmuls with weights in bf16 and f16, see half.go.

// Indices of VPSHUFB that bring the lower halves of four pairs in front of their upper halves.
DATA halves<>+0(SB)/8, $0x0d0c090805040100
DATA halves<>+8(SB)/8, $0x0f0e0b0a07060302
DATA halves<>+16(SB)/8, $0x0d0c090805040100
DATA halves<>+24(SB)/8, $0x0f0e0b0a07060302
GLOBL halves<>(SB), RODATA|NOPTR, $32

DATA upper<>+0(SB)/8, $0xffff0000ffff0000
DATA upper<>+8(SB)/8, $0xffff0000ffff0000
DATA upper<>+16(SB)/8, $0xffff0000ffff0000
DATA upper<>+24(SB)/8, $0xffff0000ffff0000
GLOBL upper<>(SB), RODATA|NOPTR, $32

// Eight k of eight columns, which start at b and R8 bytes apart, at byte o of each: y0 to y3
// get two k each, as pairs, column by column. R13 is 3·R8. Spoils Y8 to Y15, and AX.
#define LANES2(o, b, off, y, x) VMOVUPS o(b)(off), x; VINSERTF128 $1, o(AX)(off), y, y
#define PAIRS8(o, b, y0, y1, y2, y3) \
	LEAQ (b)(R8*4), AX; \
	VMOVUPS o(b), X8; VINSERTF128 $1, o(AX), Y8, Y8; \
	LANES2(o, b, R8*1, Y9, X9); \
	LANES2(o, b, R8*2, Y10, X10); \
	LANES2(o, b, R13*1, Y11, X11); \
	VUNPCKLPS Y9, Y8, Y12; \
	VUNPCKHPS Y9, Y8, Y13; \
	VUNPCKLPS Y11, Y10, Y14; \
	VUNPCKHPS Y11, Y10, Y15; \
	VUNPCKLPD Y14, Y12, y0; \
	VUNPCKHPD Y14, Y12, y1; \
	VUNPCKLPD Y15, Y13, y2; \
	VUNPCKHPD Y15, Y13, y3

// The first, then the second k of the pairs in y, widened to w. m is a mask, or the indices that
// put the first of all pairs in front of the second ones, in a register or in memory.
#define FIRST_BF16(m, y, x, w) VPSLLD $16, y, w
#define SECOND_BF16(m, y, w, wx) VPAND m, y, w
#define FIRST_F16(m, y, x, w) VPSHUFB m, y, y; VPERMQ $0xd8, y, y; VCVTPH2PS x, w
#define SECOND_F16(m, y, w, wx) VEXTRACTI128 $1, y, wx; VCVTPH2PS wx, w

// Two k of two streams for one row of A, at byte o of a0 and a1: their chains of multiply-adds
// overlap.
#define PAIR1(FIRST, SECOND, o, a0, a1, y, x, z, zx, c0, c1) \
	FIRST(Y15, y, x, Y12); VBROADCASTSS o(a0), Y14; VFMADD231PS Y12, Y14, c0; \
	FIRST(Y15, z, zx, Y13); VBROADCASTSS o(a1), Y14; VFMADD231PS Y13, Y14, c1; \
	SECOND(Y15, y, Y12, X12); VBROADCASTSS (o+4)(a0), Y14; VFMADD231PS Y12, Y14, c0; \
	SECOND(Y15, z, Y13, X13); VBROADCASTSS (o+4)(a1), Y14; VFMADD231PS Y13, Y14, c1

#define TWO1(FIRST, SECOND, m, o, b0, b1, a0, a1, c0, c1) \
	PAIRS8(o, b0, Y4, Y5, Y6, Y7); \
	PAIRS8(o, b1, Y8, Y9, Y10, Y11); \
	VMOVUPS m, Y15; \
	PAIR1(FIRST, SECOND, (2*o), a0, a1, Y4, X4, Y8, X8, c0, c1); \
	PAIR1(FIRST, SECOND, (2*o+8), a0, a1, Y5, X5, Y9, X9, c0, c1); \
	PAIR1(FIRST, SECOND, (2*o+16), a0, a1, Y6, X6, Y10, X10, c0, c1); \
	PAIR1(FIRST, SECOND, (2*o+24), a0, a1, Y7, X7, Y11, X11, c0, c1)

// Eight k of each stream for one row.
#define TURN1(FIRST, SECOND, m, o) \
	TWO1(FIRST, SECOND, m, o, SI, DI, R9, R10, Y0, Y1); \
	TWO1(FIRST, SECOND, m, o, BX, DX, R11, R12, Y2, Y3)

// Two k of one stream for two rows of A, the second R14 bytes behind the first.
#define PAIR2(FIRST, SECOND, m, o, a, y, x, c, d) \
	FIRST(m, y, x, Y12); \
	VBROADCASTSS o(a), Y14; VFMADD231PS Y12, Y14, c; \
	VBROADCASTSS o(a)(R14*1), Y15; VFMADD231PS Y12, Y15, d; \
	SECOND(m, y, Y13, X13); \
	VBROADCASTSS (o+4)(a), Y14; VFMADD231PS Y13, Y14, c; \
	VBROADCASTSS (o+4)(a)(R14*1), Y15; VFMADD231PS Y13, Y15, d

#define ONE2(FIRST, SECOND, m, o, b, a, c, d) \
	PAIRS8(o, b, Y8, Y9, Y10, Y11); \
	PAIR2(FIRST, SECOND, m, (2*o), a, Y8, X8, c, d); \
	PAIR2(FIRST, SECOND, m, (2*o+8), a, Y9, X9, c, d); \
	PAIR2(FIRST, SECOND, m, (2*o+16), a, Y10, X10, c, d); \
	PAIR2(FIRST, SECOND, m, (2*o+24), a, Y11, X11, c, d)

// Eight k of each stream for two rows.
#define TURN2(FIRST, SECOND, m, o) \
	ONE2(FIRST, SECOND, m, o, SI, R9, Y0, Y4); \
	ONE2(FIRST, SECOND, m, o, DI, R10, Y1, Y5); \
	ONE2(FIRST, SECOND, m, o, BX, R11, Y2, Y6); \
	ONE2(FIRST, SECOND, m, o, DX, R12, Y3, Y7)

// Fetch the lines of the columns at b that come next from the second-level cache, and eight
// lines from R15 on, needed much later, from memory.
#define NEXT(b, o) \
	LEAQ (b)(R8*4), AX; \
	PREFETCHT0 64(b); PREFETCHT0 64(b)(R8*1); PREFETCHT0 64(b)(R8*2); PREFETCHT0 64(b)(R13*1); \
	PREFETCHT0 64(AX); PREFETCHT0 64(AX)(R8*1); PREFETCHT0 64(AX)(R8*2); PREFETCHT0 64(AX)(R13*1); \
	PREFETCHT1 o(R15); PREFETCHT1 (o+64)(R15); PREFETCHT1 (o+128)(R15); PREFETCHT1 (o+192)(R15); \
	PREFETCHT1 (o+256)(R15); PREFETCHT1 (o+320)(R15); PREFETCHT1 (o+384)(R15); PREFETCHT1 (o+448)(R15)

// The sums of the streams: Y0 to Y3, of the second row Y4 to Y7, CX bytes behind them. The
// pointers are in a streams, at AX.
#define SUM1(o, c, d, MOVE) MOVQ o(AX), R15; MOVE((R15), c)
#define SUM2(o, c, d, MOVE) MOVQ o(AX), R15; MOVE((R15), c); MOVE((R15)(CX*1), d)
#define SUMS(ONE, MOVE) \
	MOVQ s+8(FP), AX; MOVQ sumStep+32(FP), CX; SHLQ $2, CX; \
	ONE(64, Y0, Y4, MOVE); ONE(72, Y1, Y5, MOVE); ONE(80, Y2, Y6, MOVE); ONE(88, Y3, Y7, MOVE)
#define GET(m, y) VMOVUPS m, y
#define PUT(m, y) VMOVUPS y, m

#define STREAMS(SUM, TURN, FIRST, SECOND, m) \
	SUMS(SUM, GET); \
	MOVQ 0(AX), SI; MOVQ 8(AX), DI; MOVQ 16(AX), BX; MOVQ 24(AX), DX; \
	MOVQ 32(AX), R9; MOVQ 40(AX), R10; MOVQ 48(AX), R11; MOVQ 56(AX), R12; \
	MOVQ bStep+16(FP), R8; SHLQ $1, R8; LEAQ (R8)(R8*2), R13; \
	MOVQ aStep+24(FP), R14; SHLQ $2, R14; \
	MOVQ later+40(FP), R15; \
	MOVQ k+0(FP), CX; \
	SUBQ $32, CX; \
	JLT rest; \
line: \
	NEXT(SI, 0); \
	TURN(FIRST, SECOND, m, 0); \
	NEXT(DI, 512); \
	TURN(FIRST, SECOND, m, 16); \
	NEXT(BX, 1024); \
	TURN(FIRST, SECOND, m, 32); \
	NEXT(DX, 1536); \
	TURN(FIRST, SECOND, m, 48); \
	ADDQ $64, SI; ADDQ $64, DI; ADDQ $64, BX; ADDQ $64, DX; \
	ADDQ $128, R9; ADDQ $128, R10; ADDQ $128, R11; ADDQ $128, R12; \
	ADDQ $2048, R15; \
	SUBQ $32, CX; \
	JGE line; \
rest: \
	ADDQ $32, CX; \
	JZ done; \
eight: \
	TURN(FIRST, SECOND, m, 0); \
	ADDQ $16, SI; ADDQ $16, DI; ADDQ $16, BX; ADDQ $16, DX; \
	ADDQ $32, R9; ADDQ $32, R10; ADDQ $32, R11; ADDQ $32, R12; \
	SUBQ $8, CX; \
	JNZ eight; \
done: \
	SUMS(SUM, PUT); \
	VZEROUPPER; \
	RET

// Write two k of eight columns to rows at DI, R12 bytes apart, and move on.
#define WRITE(FIRST, SECOND, y, x) FIRST(Y4, y, x, Y12); SECOND(Y4, y, Y13, X13); VMOVUPS Y12, (DI); VMOVUPS Y13, (DI)(R12*1); LEAQ (DI)(R12*2), DI

#define TRANSPOSE(FIRST, SECOND, constant) \
	MOVQ dst+0(FP), DI; \
	MOVQ dstStep+8(FP), R12; SHLQ $2, R12; \
	MOVQ src+16(FP), SI; \
	MOVQ srcStep+24(FP), R8; SHLQ $1, R8; LEAQ (R8)(R8*2), R13; \
	MOVQ k+32(FP), CX; \
	VMOVUPS constant, Y4; \
	SHRQ $3, CX; \
	JZ done; \
eight: \
	PAIRS8(0, SI, Y8, Y9, Y10, Y11); \
	WRITE(FIRST, SECOND, Y8, X8); WRITE(FIRST, SECOND, Y9, X9); \
	WRITE(FIRST, SECOND, Y10, X10); WRITE(FIRST, SECOND, Y11, X11); \
	ADDQ $16, SI; \
	DECQ CX; \
	JNZ eight; \
done: \
	VZEROUPPER; \
	RET

// func streams1BF16AVX2(k int, s *streams, bStep, aStep, sumStep int, later uintptr)
TEXT ·streams1BF16AVX2(SB), NOSPLIT, $0-48
	STREAMS(SUM1, TURN1, FIRST_BF16, SECOND_BF16, upper<>(SB))

// func streams2BF16AVX2(k int, s *streams, bStep, aStep, sumStep int, later uintptr)
TEXT ·streams2BF16AVX2(SB), NOSPLIT, $0-48
	STREAMS(SUM2, TURN2, FIRST_BF16, SECOND_BF16, upper<>(SB))

// func streams1F16AVX2(k int, s *streams, bStep, aStep, sumStep int, later uintptr)
TEXT ·streams1F16AVX2(SB), NOSPLIT, $0-48
	STREAMS(SUM1, TURN1, FIRST_F16, SECOND_F16, halves<>(SB))

// func streams2F16AVX2(k int, s *streams, bStep, aStep, sumStep int, later uintptr)
TEXT ·streams2F16AVX2(SB), NOSPLIT, $0-48
	STREAMS(SUM2, TURN2, FIRST_F16, SECOND_F16, halves<>(SB))

// func transposeBF16AVX2(dst *float32, dstStep int, src *uint16, srcStep, k int)
// dst[p*dstStep+i] = src[i*srcStep+p] for p < k, i < 8. k is a multiple of 8.
TEXT ·transposeBF16AVX2(SB), NOSPLIT, $0-40
	TRANSPOSE(FIRST_BF16, SECOND_BF16, upper<>(SB))

// func transposeF16AVX2(dst *float32, dstStep int, src *uint16, srcStep, k int)
TEXT ·transposeF16AVX2(SB), NOSPLIT, $0-40
	TRANSPOSE(FIRST_F16, SECOND_F16, halves<>(SB))

// Rows of 16 codes, R9 bytes apart, widened to rows R12 bytes apart. Rows that come later are fetched.
#define SIXTEEN_BF16 VPMOVZXWD (SI), Y0; VPMOVZXWD 16(SI), Y1; VPSLLD $16, Y0, Y0; VPSLLD $16, Y1, Y1
#define SIXTEEN_F16 VCVTPH2PS (SI), Y0; VCVTPH2PS 16(SI), Y1
#define WIDEN_ROWS(SIXTEEN) \
	MOVQ dst+0(FP), DI; \
	MOVQ dstStep+8(FP), R12; SHLQ $2, R12; \
	MOVQ src+16(FP), SI; \
	MOVQ srcStep+24(FP), R9; SHLQ $1, R9; \
	MOVQ k+32(FP), CX; \
row: \
	PREFETCHT0 (SI)(R9*8); \
	SIXTEEN; \
	VMOVUPS Y0, (DI); VMOVUPS Y1, 32(DI); \
	ADDQ R9, SI; ADDQ R12, DI; \
	DECQ CX; \
	JNZ row; \
	VZEROUPPER; \
	RET

// func widenRowsBF16AVX2(dst *float32, dstStep int, src *uint16, srcStep, k int)
TEXT ·widenRowsBF16AVX2(SB), NOSPLIT, $0-40
	WIDEN_ROWS(SIXTEEN_BF16)

// func widenRowsF16AVX2(dst *float32, dstStep int, src *uint16, srcStep, k int)
TEXT ·widenRowsF16AVX2(SB), NOSPLIT, $0-40
	WIDEN_ROWS(SIXTEEN_F16)
