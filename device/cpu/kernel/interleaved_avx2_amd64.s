#include "textflag.h"

// Matmuls of few rows with interleaved weights in bf16 and f16: streams, see half.go. Eight
// columns lie together, so that codes are widened in place. bf16 lies in pairs of k.

DATA upper<>+0(SB)/4, $0xffff0000
GLOBL upper<>(SB), RODATA|NOPTR, $4

// Two k of a stream at b, from number p on: Y8 and Y9.
#define WIDEN_BF16(p, b) VMOVDQU (16*p)(b), Y9; VPSLLD $16, Y9, Y8; VPAND Y15, Y9, Y9
#define WIDEN_F16(p, b) VCVTPH2PS (16*p)(b), Y8; VCVTPH2PS (16*p+16)(b), Y9

// Multiply them by one row of A at a, by two, R14 bytes apart, or by four. R13 is 3·R14.
#define TWO1(WIDEN, p, b, a, c) \
	WIDEN(p, b); \
	VBROADCASTSS (4*p)(a), Y10; VFMADD231PS Y8, Y10, c; \
	VBROADCASTSS (4*p+4)(a), Y11; VFMADD231PS Y9, Y11, c
#define TWO2(WIDEN, p, b, a, c, d) \
	TWO1(WIDEN, p, b, a, c); \
	VBROADCASTSS (4*p)(a)(R14*1), Y12; VFMADD231PS Y8, Y12, d; \
	VBROADCASTSS (4*p+4)(a)(R14*1), Y13; VFMADD231PS Y9, Y13, d
#define TWO4(WIDEN, p, b, a, c, d, e, f) \
	TWO2(WIDEN, p, b, a, c, d); \
	VBROADCASTSS (4*p)(a)(R14*2), Y10; VFMADD231PS Y8, Y10, e; \
	VBROADCASTSS (4*p+4)(a)(R14*2), Y11; VFMADD231PS Y9, Y11, e; \
	VBROADCASTSS (4*p)(a)(R13*1), Y12; VFMADD231PS Y8, Y12, f; \
	VBROADCASTSS (4*p+4)(a)(R13*1), Y13; VFMADD231PS Y9, Y13, f

#define TURN1(WIDEN, p) \
	TWO1(WIDEN, p, SI, R9, Y0); TWO1(WIDEN, p, DI, R10, Y1); TWO1(WIDEN, p, BX, R11, Y2); TWO1(WIDEN, p, DX, R12, Y3)
#define TURN2(WIDEN, p) \
	TWO2(WIDEN, p, SI, R9, Y0, Y4); TWO2(WIDEN, p, DI, R10, Y1, Y5); TWO2(WIDEN, p, BX, R11, Y2, Y6); TWO2(WIDEN, p, DX, R12, Y3, Y7)

// Fetch what is needed much later: as many lines as eight k of four streams have.
#define LATER(o) PREFETCHT1 o(R15)
#define LATER8 LATER(0); LATER(64); LATER(128); LATER(192); LATER(256); LATER(320); LATER(384); LATER(448); ADDQ $512, R15

#define SUM1(o, c, d, MOVE) MOVQ o(AX), R15; MOVE((R15), c)
#define SUM2(o, c, d, MOVE) MOVQ o(AX), R15; MOVE((R15), c); MOVE((R15)(CX*1), d)
#define SUMS(ONE, MOVE) \
	MOVQ s+8(FP), AX; MOVQ sumStep+32(FP), CX; SHLQ $2, CX; \
	ONE(64, Y0, Y4, MOVE); ONE(72, Y1, Y5, MOVE); ONE(80, Y2, Y6, MOVE); ONE(88, Y3, Y7, MOVE)
#define GET(m, y) VMOVUPS m, y
#define PUT(m, y) VMOVUPS y, m

#define STREAMS(SUM, TURN, WIDEN) \
	SUMS(SUM, GET); \
	MOVQ 0(AX), SI; MOVQ 8(AX), DI; MOVQ 16(AX), BX; MOVQ 24(AX), DX; \
	MOVQ 32(AX), R9; MOVQ 40(AX), R10; MOVQ 48(AX), R11; MOVQ 56(AX), R12; \
	MOVQ aStep+24(FP), R14; SHLQ $2, R14; \
	MOVQ later+40(FP), R15; \
	VPBROADCASTD upper<>(SB), Y15; \
	MOVQ k+0(FP), CX; \
eight: \
	LATER8; \
	TURN(WIDEN, 0); TURN(WIDEN, 2); TURN(WIDEN, 4); TURN(WIDEN, 6); \
	ADDQ $128, SI; ADDQ $128, DI; ADDQ $128, BX; ADDQ $128, DX; \
	ADDQ $32, R9; ADDQ $32, R10; ADDQ $32, R11; ADDQ $32, R12; \
	SUBQ $8, CX; \
	JNZ eight; \
	SUMS(SUM, PUT); \
	VZEROUPPER; \
	RET

// Four rows are multiplied with two streams at a time, whose pointers are at o of AX. R8 is 3·CX.
#define SUM4(o, c, d, e, f, MOVE) MOVQ o(AX), DX; MOVE((DX), c); MOVE((DX)(CX*1), d); MOVE((DX)(CX*2), e); MOVE((DX)(R8*1), f)
#define PAIR4(o, loop, WIDEN) \
	SUM4((64+o), Y0, Y1, Y2, Y3, GET); SUM4((72+o), Y4, Y5, Y6, Y7, GET); \
	MOVQ o(AX), SI; MOVQ (8+o)(AX), DI; MOVQ (32+o)(AX), R9; MOVQ (40+o)(AX), R10; \
	MOVQ k+0(FP), R11; \
loop: \
	LATER(0); LATER(64); LATER(128); LATER(192); ADDQ $256, R15; \
	TWO4(WIDEN, 0, SI, R9, Y0, Y1, Y2, Y3); TWO4(WIDEN, 0, DI, R10, Y4, Y5, Y6, Y7); \
	TWO4(WIDEN, 2, SI, R9, Y0, Y1, Y2, Y3); TWO4(WIDEN, 2, DI, R10, Y4, Y5, Y6, Y7); \
	TWO4(WIDEN, 4, SI, R9, Y0, Y1, Y2, Y3); TWO4(WIDEN, 4, DI, R10, Y4, Y5, Y6, Y7); \
	TWO4(WIDEN, 6, SI, R9, Y0, Y1, Y2, Y3); TWO4(WIDEN, 6, DI, R10, Y4, Y5, Y6, Y7); \
	ADDQ $128, SI; ADDQ $128, DI; ADDQ $32, R9; ADDQ $32, R10; \
	SUBQ $8, R11; \
	JNZ loop; \
	SUM4((64+o), Y0, Y1, Y2, Y3, PUT); SUM4((72+o), Y4, Y5, Y6, Y7, PUT)

#define STREAMS4(WIDEN) \
	MOVQ s+8(FP), AX; MOVQ sumStep+32(FP), CX; SHLQ $2, CX; LEAQ (CX)(CX*2), R8; \
	MOVQ aStep+24(FP), R14; SHLQ $2, R14; LEAQ (R14)(R14*2), R13; \
	MOVQ later+40(FP), R15; \
	VPBROADCASTD upper<>(SB), Y15; \
	PAIR4(0, first, WIDEN); \
	PAIR4(16, second, WIDEN); \
	VZEROUPPER; \
	RET

// Write two k of eight columns, R12 bytes apart.
#define WRITE(WIDEN, p) WIDEN(p, SI); VMOVUPS Y8, (DI); VMOVUPS Y9, (DI)(R12*1); LEAQ (DI)(R12*2), DI
#define DEINTERLEAVE(WIDEN) \
	MOVQ dst+0(FP), DI; \
	MOVQ step+8(FP), R12; SHLQ $2, R12; \
	MOVQ src+16(FP), SI; \
	MOVQ k+24(FP), CX; \
	VPBROADCASTD upper<>(SB), Y15; \
	SHRQ $3, CX; \
	JZ done; \
eight: \
	WRITE(WIDEN, 0); WRITE(WIDEN, 2); WRITE(WIDEN, 4); WRITE(WIDEN, 6); \
	ADDQ $128, SI; \
	DECQ CX; \
	JNZ eight; \
done: \
	VZEROUPPER; \
	RET

// func interleaved1BF16AVX2(k int, s *streams, bStep, aStep, sumStep int, later uintptr)
TEXT ·interleaved1BF16AVX2(SB), NOSPLIT, $0-48
	STREAMS(SUM1, TURN1, WIDEN_BF16)

// func interleaved2BF16AVX2(k int, s *streams, bStep, aStep, sumStep int, later uintptr)
TEXT ·interleaved2BF16AVX2(SB), NOSPLIT, $0-48
	STREAMS(SUM2, TURN2, WIDEN_BF16)

// func interleaved4BF16AVX2(k int, s *streams, bStep, aStep, sumStep int, later uintptr)
TEXT ·interleaved4BF16AVX2(SB), NOSPLIT, $0-48
	STREAMS4(WIDEN_BF16)

// func interleaved1F16AVX2(k int, s *streams, bStep, aStep, sumStep int, later uintptr)
TEXT ·interleaved1F16AVX2(SB), NOSPLIT, $0-48
	STREAMS(SUM1, TURN1, WIDEN_F16)

// func interleaved2F16AVX2(k int, s *streams, bStep, aStep, sumStep int, later uintptr)
TEXT ·interleaved2F16AVX2(SB), NOSPLIT, $0-48
	STREAMS(SUM2, TURN2, WIDEN_F16)

// func interleaved4F16AVX2(k int, s *streams, bStep, aStep, sumStep int, later uintptr)
TEXT ·interleaved4F16AVX2(SB), NOSPLIT, $0-48
	STREAMS4(WIDEN_F16)

// func deinterleaveBF16AVX2(dst *float32, step int, src *uint16, k int)
// k is a multiple of 8.
TEXT ·deinterleaveBF16AVX2(SB), NOSPLIT, $0-32
	DEINTERLEAVE(WIDEN_BF16)

// func deinterleaveF16AVX2(dst *float32, step int, src *uint16, k int)
TEXT ·deinterleaveF16AVX2(SB), NOSPLIT, $0-32
	DEINTERLEAVE(WIDEN_F16)
