#include "textflag.h"

// Matmuls of few rows with interleaved weights in bf16 and f16, see gemm_interleaved.go. Of 32
// columns that lie together one k has 64 bytes; bf16 lies in pairs of k, the first above the second. SI is the weight, R9 the
// input.

DATA upper<>+0(SB)/4, $0xffff0000
GLOBL upper<>(SB), RODATA|NOPTR, $4

// Pair p of k of eight columns, the g-th of four: Y8 and Y9.
#define WIDEN_BF16(p, g) VMOVDQU (128*p+32*g)(SI), Y8; VPSLLD $16, Y8, Y9; VPAND Y15, Y8, Y8
#define WIDEN_F16(p, g) VCVTPH2PS (128*p+16*g)(SI), Y8; VCVTPH2PS (128*p+16*g+64)(SI), Y9

// Multiply the pair by that of one row of A, which is in Y10 and Y11, or of two, the second in Y12
// and Y13.
#define PAIR1(WIDEN, p, g, c, d) WIDEN(p, g); VFMADD231PS Y8, Y10, c; VFMADD231PS Y9, Y11, c
#define PAIR2(WIDEN, p, g, c, d) PAIR1(WIDEN, p, g, c, d); VFMADD231PS Y8, Y12, d; VFMADD231PS Y9, Y13, d

#define INPUT1(p) VBROADCASTSS (8*p)(R9), Y10; VBROADCASTSS (8*p+4)(R9), Y11
#define INPUT2(p) INPUT1(p); VBROADCASTSS (8*p)(R9)(R14*1), Y12; VBROADCASTSS (8*p+4)(R9)(R14*1), Y13
#define TURN(INPUT, PAIR, WIDEN, p) \
	INPUT(p); PAIR(WIDEN, p, 0, Y0, Y4); PAIR(WIDEN, p, 1, Y1, Y5); PAIR(WIDEN, p, 2, Y2, Y6); PAIR(WIDEN, p, 3, Y3, Y7)

// Lines that come later: as many as eight k have.
#define LATER(o) PREFETCHT0 (AHEAD+o)(SI)
#define AHEAD 4096
#define LATER8 LATER(0); LATER(64); LATER(128); LATER(192); LATER(256); LATER(320); LATER(384); LATER(448)

#define ZERO8 \
	VXORPS Y0, Y0, Y0; VXORPS Y1, Y1, Y1; VXORPS Y2, Y2, Y2; VXORPS Y3, Y3, Y3; \
	VXORPS Y4, Y4, Y4; VXORPS Y5, Y5, Y5; VXORPS Y6, Y6, Y6; VXORPS Y7, Y7, Y7
#define PUT4(o, a, b, c, d) VMOVUPS a, (o)(DI); VMOVUPS b, (o+32)(DI); VMOVUPS c, (o+64)(DI); VMOVUPS d, (o+96)(DI)

#define ARGUMENTS \
	MOVQ k+0(FP), CX; MOVQ a+8(FP), R9; MOVQ aStep+16(FP), R14; SHLQ $2, R14; \
	MOVQ b+24(FP), SI; MOVQ sums+32(FP), DI; \
	VPBROADCASTD upper<>(SB), Y15

#define INTERLEAVED(INPUT, PAIR, WIDEN) \
	ARGUMENTS; \
	ZERO8; \
eight: \
	LATER8; \
	TURN(INPUT, PAIR, WIDEN, 0); TURN(INPUT, PAIR, WIDEN, 1); TURN(INPUT, PAIR, WIDEN, 2); TURN(INPUT, PAIR, WIDEN, 3); \
	ADDQ $512, SI; ADDQ $32, R9; \
	SUBQ $8, CX; \
	JNZ eight; \
	PUT4(0, Y0, Y1, Y2, Y3)

// Four rows are multiplied by 16 of the columns at a time, from the g-th eight on. R13 is 3·R14.
#define ROW4(p, at, c) VBROADCASTSS (8*p)at, Y10; VFMADD231PS Y8, Y10, c; VBROADCASTSS (8*p+4)at, Y11; VFMADD231PS Y9, Y11, c
#define PAIR4(WIDEN, p, g, c, d, e, f) \
	WIDEN(p, g); ROW4(p, (R9), c); ROW4(p, (R9)(R14*1), d); ROW4(p, (R9)(R14*2), e); ROW4(p, (R9)(R13*1), f)
#define TURN4(WIDEN, p, g) PAIR4(WIDEN, p, g, Y0, Y1, Y2, Y3); PAIR4(WIDEN, p, (g+1), Y4, Y5, Y6, Y7)
#define SIXTEEN4(loop, WIDEN, g, FETCH) \
	ZERO8; \
loop: \
	FETCH; \
	TURN4(WIDEN, 0, g); TURN4(WIDEN, 1, g); TURN4(WIDEN, 2, g); TURN4(WIDEN, 3, g); \
	ADDQ $512, SI; ADDQ $32, R9; \
	SUBQ $8, CX; \
	JNZ loop; \
	VMOVUPS Y0, (32*g)(DI); VMOVUPS Y4, (32*g+32)(DI); VMOVUPS Y1, (32*g+128)(DI); VMOVUPS Y5, (32*g+160)(DI); \
	VMOVUPS Y2, (32*g+256)(DI); VMOVUPS Y6, (32*g+288)(DI); VMOVUPS Y3, (32*g+384)(DI); VMOVUPS Y7, (32*g+416)(DI)
#define NOTHING

#define INTERLEAVED4(WIDEN) \
	ARGUMENTS; \
	LEAQ (R14)(R14*2), R13; \
	SIXTEEN4(first, WIDEN, 0, LATER8); \
	MOVQ k+0(FP), CX; MOVQ a+8(FP), R9; MOVQ b+24(FP), SI; \
	SIXTEEN4(second, WIDEN, 2, NOTHING); \
	VZEROUPPER; \
	RET

// Write pair p of k of eight columns, R12 bytes from k to k.
#define WRITE(WIDEN, p) WIDEN(p, 0); VMOVUPS Y8, (DI); VMOVUPS Y9, (DI)(R12*1); LEAQ (DI)(R12*2), DI
#define DEINTERLEAVE(WIDEN) \
	MOVQ dst+0(FP), DI; \
	MOVQ step+8(FP), R12; SHLQ $2, R12; \
	MOVQ src+16(FP), SI; \
	MOVQ k+24(FP), CX; \
	VPBROADCASTD upper<>(SB), Y15; \
	SHRQ $3, CX; \
	JZ done; \
eight: \
	WRITE(WIDEN, 0); WRITE(WIDEN, 1); WRITE(WIDEN, 2); WRITE(WIDEN, 3); \
	ADDQ $512, SI; \
	DECQ CX; \
	JNZ eight; \
done: \
	VZEROUPPER; \
	RET

// The same of all 32 columns, those from the sixteenth on R11 bytes behind the others.
#define WIDEN4(WIDEN, p) \
	PREFETCHT0 512(DI); PREFETCHT0 512(DI)(R12*1); PREFETCHT0 512(R8); PREFETCHT0 512(R8)(R12*1); \
	WIDEN(p, 0); VMOVUPS Y8, (DI); VMOVUPS Y9, (DI)(R12*1); WIDEN(p, 1); VMOVUPS Y8, 32(DI); VMOVUPS Y9, 32(DI)(R12*1); \
	WIDEN(p, 2); VMOVUPS Y8, (R8); VMOVUPS Y9, (R8)(R12*1); WIDEN(p, 3); VMOVUPS Y8, 32(R8); VMOVUPS Y9, 32(R8)(R12*1); \
	LEAQ (DI)(R12*2), DI; LEAQ (R8)(R12*2), R8
#define WIDENTOGETHER(WIDEN) \
	MOVQ dst+0(FP), DI; \
	MOVQ step+8(FP), R12; SHLQ $2, R12; \
	MOVQ half+16(FP), R8; LEAQ (DI)(R8*4), R8; \
	MOVQ src+24(FP), SI; \
	MOVQ k+32(FP), CX; \
	VPBROADCASTD upper<>(SB), Y15; \
	SHRQ $3, CX; \
	JZ done; \
eight: \
	LATER8; \
	WIDEN4(WIDEN, 0); WIDEN4(WIDEN, 1); WIDEN4(WIDEN, 2); WIDEN4(WIDEN, 3); \
	ADDQ $512, SI; \
	DECQ CX; \
	JNZ eight; \
done: \
	VZEROUPPER; \
	RET

// func interleaved1BF16AVX2(k int, a *float32, aStep int, b *uint16, sums *float32)
TEXT ·interleaved1BF16AVX2(SB), NOSPLIT, $0-40
	INTERLEAVED(INPUT1, PAIR1, WIDEN_BF16)
	VZEROUPPER
	RET

// func interleaved2BF16AVX2(k int, a *float32, aStep int, b *uint16, sums *float32)
TEXT ·interleaved2BF16AVX2(SB), NOSPLIT, $0-40
	INTERLEAVED(INPUT2, PAIR2, WIDEN_BF16)
	PUT4(128, Y4, Y5, Y6, Y7)
	VZEROUPPER
	RET

// func interleaved4BF16AVX2(k int, a *float32, aStep int, b *uint16, sums *float32)
TEXT ·interleaved4BF16AVX2(SB), NOSPLIT, $0-40
	INTERLEAVED4(WIDEN_BF16)

// func interleaved1F16AVX2(k int, a *float32, aStep int, b *uint16, sums *float32)
TEXT ·interleaved1F16AVX2(SB), NOSPLIT, $0-40
	INTERLEAVED(INPUT1, PAIR1, WIDEN_F16)
	VZEROUPPER
	RET

// func interleaved2F16AVX2(k int, a *float32, aStep int, b *uint16, sums *float32)
TEXT ·interleaved2F16AVX2(SB), NOSPLIT, $0-40
	INTERLEAVED(INPUT2, PAIR2, WIDEN_F16)
	PUT4(128, Y4, Y5, Y6, Y7)
	VZEROUPPER
	RET

// func interleaved4F16AVX2(k int, a *float32, aStep int, b *uint16, sums *float32)
TEXT ·interleaved4F16AVX2(SB), NOSPLIT, $0-40
	INTERLEAVED4(WIDEN_F16)

// func deinterleaveBF16AVX2(dst *float32, step int, src *uint16, k int)
// k is a multiple of 8.
TEXT ·deinterleaveBF16AVX2(SB), NOSPLIT, $0-32
	DEINTERLEAVE(WIDEN_BF16)

// func deinterleaveF16AVX2(dst *float32, step int, src *uint16, k int)
TEXT ·deinterleaveF16AVX2(SB), NOSPLIT, $0-32
	DEINTERLEAVE(WIDEN_F16)

// func togetherBF16AVX2(dst *float32, step, half int, src *uint16, k int)
// k is a multiple of 8.
TEXT ·togetherBF16AVX2(SB), NOSPLIT, $0-40
	WIDENTOGETHER(WIDEN_BF16)

// func togetherF16AVX2(dst *float32, step, half int, src *uint16, k int)
TEXT ·togetherF16AVX2(SB), NOSPLIT, $0-40
	WIDENTOGETHER(WIDEN_F16)
