#include "textflag.h"
#include "transpose.h"

// Transforms of Winograd's convolutions for AVX2, see winograd.go, of eight channels at a time. The 16
// matrices of a transform are R10 bytes apart: number 4i+j is at DX + i·R11, where DX is DI + j·R10; R12 is
// 3·R11.

#define STEPS(xi) MOVQ xi, R10; SHLQ $2, R10; LEAQ (R10*4), R11; LEAQ (R11)(R11*2), R12
#define NEXT_COLUMN ADDQ R10, DX

// Rows 0 to 3 of a column of a matrix.
#define AT0 (DX)
#define AT1 (DX)(R11*1)
#define AT2 (DX)(R11*2)
#define AT3 (DX)(R12*1)

// Bᵀ of a column in Y0 to Y3, stored.
#define IN_STORE \
	VSUBPS Y2, Y0, Y4; VMOVUPS Y4, AT0; \
	VADDPS Y2, Y1, Y5; VMOVUPS Y5, AT1; \
	VSUBPS Y1, Y2, Y6; VMOVUPS Y6, AT2; \
	VSUBPS Y3, Y1, Y7; VMOVUPS Y7, AT3; \
	NEXT_COLUMN
// a OP b of four rows, where columns begin there.
#define IN_COLUMN(OP, b, a) \
	VMOVUPS (a), Y0; OP (b), Y0, Y0; \
	VMOVUPS (a)(R8*1), Y1; OP (b)(R8*1), Y1, Y1; \
	VMOVUPS (a)(R8*2), Y2; OP (b)(R8*2), Y2, Y2; \
	VMOVUPS (a)(R9*1), Y3; OP (b)(R9*1), Y3, Y3; \
	IN_STORE

// func winogradInAVX2(dst *float32, xi int, src *float32, row, col, n int)
TEXT ·winogradInAVX2(SB), NOSPLIT, $0-48
	MOVQ dst+0(FP), DI
	STEPS(xi+8(FP))
	MOVQ src+16(FP), SI
	MOVQ row+24(FP), R8
	SHLQ $2, R8
	LEAQ (R8)(R8*2), R9
	MOVQ col+32(FP), AX
	SHLQ $2, AX
	LEAQ (SI)(AX*1), BX
	LEAQ (SI)(AX*2), R13
	LEAQ (BX)(AX*2), AX
	MOVQ n+40(FP), CX
eight:
	MOVQ DI, DX
	IN_COLUMN(VSUBPS, R13, SI)
	IN_COLUMN(VADDPS, R13, BX)
	IN_COLUMN(VSUBPS, BX, R13)
	IN_COLUMN(VSUBPS, AX, BX)
	ADDQ $32, SI
	ADDQ $32, BX
	ADDQ $32, R13
	ADDQ $32, AX
	ADDQ $32, DI
	SUBQ $8, CX
	JNZ eight
	VZEROUPPER
	RET

// func winogradOutAVX2(dst *float32, row, col int, src *float32, xi int, add *float32, n int)
// Rows are summed over columns in Y0 to Y3 for the left and in Y4 to Y7 for the right.
#define OUT_FIRST(at, l) VMOVUPS at, l
#define OUT_SECOND(at, l, r) VMOVUPS at, r; VADDPS r, l, l
#define OUT_THIRD(at, l, r) VMOVUPS at, Y8; VADDPS Y8, l, l; VSUBPS Y8, r, r
#define OUT_LAST(at, r) VSUBPS at, r, r
TEXT ·winogradOutAVX2(SB), NOSPLIT, $0-56
	MOVQ dst+0(FP), SI
	MOVQ row+8(FP), R8
	SHLQ $2, R8
	MOVQ col+16(FP), R9
	SHLQ $2, R9
	MOVQ src+24(FP), DI
	STEPS(xi+32(FP))
	MOVQ add+40(FP), BX
	MOVQ n+48(FP), CX
	LEAQ (R8)(R9*1), R13
	VXORPS Y9, Y9, Y9
eight:
	MOVQ DI, DX
	OUT_FIRST(AT0, Y0); OUT_FIRST(AT1, Y1); OUT_FIRST(AT2, Y2); OUT_FIRST(AT3, Y3)
	NEXT_COLUMN
	OUT_SECOND(AT0, Y0, Y4); OUT_SECOND(AT1, Y1, Y5); OUT_SECOND(AT2, Y2, Y6); OUT_SECOND(AT3, Y3, Y7)
	NEXT_COLUMN
	OUT_THIRD(AT0, Y0, Y4); OUT_THIRD(AT1, Y1, Y5); OUT_THIRD(AT2, Y2, Y6); OUT_THIRD(AT3, Y3, Y7)
	NEXT_COLUMN
	OUT_LAST(AT0, Y4); OUT_LAST(AT1, Y5); OUT_LAST(AT2, Y6); OUT_LAST(AT3, Y7)
	TESTQ BX, BX
	JZ store
	VMOVUPS (BX), Y9
	ADDQ $32, BX
store:
	VADDPS Y1, Y0, Y0
	VADDPS Y2, Y0, Y0
	VADDPS Y9, Y0, Y0
	VMOVUPS Y0, (SI)
	VSUBPS Y2, Y1, Y1
	VSUBPS Y3, Y1, Y1
	VADDPS Y9, Y1, Y1
	VMOVUPS Y1, (SI)(R8*1)
	VADDPS Y5, Y4, Y4
	VADDPS Y6, Y4, Y4
	VADDPS Y9, Y4, Y4
	VMOVUPS Y4, (SI)(R9*1)
	VSUBPS Y6, Y5, Y5
	VSUBPS Y7, Y5, Y5
	VADDPS Y9, Y5, Y5
	VMOVUPS Y5, (SI)(R13*1)
	ADDQ $32, SI
	ADDQ $32, DI
	SUBQ $8, CX
	JNZ eight
	VZEROUPPER
	RET

// G of a column in Y0 to Y2, stored. Halves are in Y15.
#define WEIGHT_STORE \
	VMOVUPS Y0, AT0; VMOVUPS Y2, AT3; \
	VADDPS Y2, Y0, Y3; VADDPS Y1, Y3, Y4; VSUBPS Y1, Y3, Y5; \
	VMULPS Y15, Y4, Y4; VMULPS Y15, Y5, Y5; \
	VMOVUPS Y4, AT1; VMOVUPS Y5, AT2; \
	NEXT_COLUMN
#define WEIGHT_MIDDLE(OP, o, y) \
	VMOVUPS o(AX), y; VADDPS (o+64)(AX), y, y; OP (o+32)(AX), y, y; VMULPS Y15, y, y
// Four places, o bytes from where they begin, of eight windows in Y0 to Y3, stored R14 apart from BX on.
#define WINDOWS(o) \
	VMOVUPS o(SI), X0; VMOVUPS o(SI)(R8*1), X1; VMOVUPS o(SI)(R8*2), X2; VMOVUPS o(SI)(R13*1), X3; \
	VINSERTF128 $1, o(R9), Y0, Y0; VINSERTF128 $1, o(R9)(R8*1), Y1, Y1; \
	VINSERTF128 $1, o(R9)(R8*2), Y2, Y2; VINSERTF128 $1, o(R9)(R13*1), Y3, Y3; \
	BLOCKS(Y0, Y1, Y2, Y3, Y4, Y5, Y6, Y7); \
	VMOVUPS Y0, (BX); VMOVUPS Y1, (BX)(R14*1); LEAQ (BX)(R14*2), BX; \
	VMOVUPS Y2, (BX); VMOVUPS Y3, (BX)(R14*1); LEAQ (BX)(R14*2), BX
// The last place of four windows.
#define LAST(at, x) \
	VMOVSS 32(at), x; VINSERTPS $0x10, 32(at)(R8*1), x, x; VINSERTPS $0x20, 32(at)(R8*2), x, x; VINSERTPS $0x30, 32(at)(R13*1), x, x

// func winogradWeightAVX2(dst *float32, xi, dstStep int, src *float32, step, rowStep, n int, reversed bool)
// Eight windows are put into the frame place by place, in reverse order if so asked, and transformed from there.
TEXT ·winogradWeightAVX2(SB), NOSPLIT, $288-57
	MOVQ dst+0(FP), DI
	STEPS(xi+8(FP))
	MOVQ src+24(FP), SI
	MOVQ step+32(FP), R8
	SHLQ $2, R8
	LEAQ (R8)(R8*2), R13
	LEAQ (SI)(R8*4), R9
	MOVQ n+48(FP), CX
	MOVL $0x3f000000, AX
	MOVQ AX, X15
	VBROADCASTSS X15, Y15
	LEAQ windows-288(SP), AX
row:
	MOVQ AX, BX
	MOVQ $32, R14
	CMPB reversed+56(FP), $0
	JEQ places
	ADDQ $256, BX
	NEGQ R14
places:
	WINDOWS(0)
	WINDOWS(16)
	LAST(SI, X0)
	LAST(R9, X1)
	VINSERTF128 $1, X1, Y0, Y0
	VMOVUPS Y0, (BX)
	MOVQ DI, DX
	VMOVUPS (AX), Y0
	VMOVUPS 96(AX), Y1
	VMOVUPS 192(AX), Y2
	WEIGHT_STORE
	WEIGHT_MIDDLE(VADDPS, 0, Y0)
	WEIGHT_MIDDLE(VADDPS, 96, Y1)
	WEIGHT_MIDDLE(VADDPS, 192, Y2)
	WEIGHT_STORE
	WEIGHT_MIDDLE(VSUBPS, 0, Y0)
	WEIGHT_MIDDLE(VSUBPS, 96, Y1)
	WEIGHT_MIDDLE(VSUBPS, 192, Y2)
	WEIGHT_STORE
	VMOVUPS 64(AX), Y0
	VMOVUPS 160(AX), Y1
	VMOVUPS 256(AX), Y2
	WEIGHT_STORE
	MOVQ rowStep+40(FP), BX
	LEAQ (SI)(BX*4), SI
	LEAQ (R9)(BX*4), R9
	MOVQ dstStep+16(FP), BX
	LEAQ (DI)(BX*4), DI
	DECQ CX
	JNZ row
	VZEROUPPER
	RET

// A of a column a, b, stored. Y15 is zero.
#define GRAD_STORE(a, b) \
	VMOVUPS a, AT0; VADDPS b, a, Y8; VMOVUPS Y8, AT1; VSUBPS b, a, Y9; VMOVUPS Y9, AT2; VSUBPS b, Y15, Y10; VMOVUPS Y10, AT3; \
	NEXT_COLUMN

// func winogradGradAVX2(dst *float32, xi int, src *float32, row, col, n int)
TEXT ·winogradGradAVX2(SB), NOSPLIT, $0-48
	MOVQ dst+0(FP), DI
	STEPS(xi+8(FP))
	MOVQ src+16(FP), SI
	MOVQ row+24(FP), R8
	SHLQ $2, R8
	MOVQ col+32(FP), R9
	SHLQ $2, R9
	LEAQ (R8)(R9*1), R13
	MOVQ n+40(FP), CX
	VXORPS Y15, Y15, Y15
eight:
	MOVQ DI, DX
	VMOVUPS (SI), Y0
	VMOVUPS (SI)(R8*1), Y1
	VMOVUPS (SI)(R9*1), Y2
	VMOVUPS (SI)(R13*1), Y3
	GRAD_STORE(Y0, Y1)
	VADDPS Y2, Y0, Y4
	VADDPS Y3, Y1, Y5
	GRAD_STORE(Y4, Y5)
	VSUBPS Y2, Y0, Y4
	VSUBPS Y3, Y1, Y5
	GRAD_STORE(Y4, Y5)
	VSUBPS Y2, Y15, Y4
	VSUBPS Y3, Y15, Y5
	GRAD_STORE(Y4, Y5)
	ADDQ $32, SI
	ADDQ $32, DI
	SUBQ $8, CX
	JNZ eight
	VZEROUPPER
	RET

// Gᵀ of rows in Y0 to Y3, stored in column o.
#define BACK_STORE(o) \
	VADDPS Y2, Y1, Y4; VMULPS Y15, Y4, Y4; VSUBPS Y2, Y1, Y5; VMULPS Y15, Y5, Y5; \
	VADDPS Y4, Y0, Y0; VADDPS Y4, Y3, Y3; \
	VMOVUPS Y0, o(AX); VMOVUPS Y5, (o+96)(AX); VMOVUPS Y3, (o+192)(AX)
// Rows' halves of the sums, and of the differences, of columns 1 and 2.
#define HALVES(OP) \
	VMOVUPS AT0, Y0; VMOVUPS AT1, Y1; VMOVUPS AT2, Y2; VMOVUPS AT3, Y3; NEXT_COLUMN; \
	OP AT0, Y0, Y0; OP AT1, Y1, Y1; OP AT2, Y2, Y2; OP AT3, Y3, Y3; \
	VMULPS Y15, Y0, Y0; VMULPS Y15, Y1, Y1; VMULPS Y15, Y2, Y2; VMULPS Y15, Y3, Y3
#define PLUS VADDPS AT0, Y0, Y0; VADDPS AT1, Y1, Y1; VADDPS AT2, Y2, Y2; VADDPS AT3, Y3, Y3

// Four places of eight windows, from o of the frame on, stored at b bytes of each window.
#define WINDOWS_BACK(o, b) \
	VMOVUPS o(AX), Y0; VMOVUPS (o+32)(AX), Y1; VMOVUPS (o+64)(AX), Y2; VMOVUPS (o+96)(AX), Y3; \
	BLOCKS(Y0, Y1, Y2, Y3, Y4, Y5, Y6, Y7); \
	VMOVUPS X0, b(SI); VMOVUPS X1, b(SI)(R8*1); VMOVUPS X2, b(SI)(R8*2); VMOVUPS X3, b(SI)(R13*1); \
	VEXTRACTF128 $1, Y0, b(R9); VEXTRACTF128 $1, Y1, b(R9)(R8*1); \
	VEXTRACTF128 $1, Y2, b(R9)(R8*2); VEXTRACTF128 $1, Y3, b(R9)(R13*1)
// The last place of four windows.
#define LAST_BACK(x, at) \
	VMOVSS x, 32(at); VEXTRACTPS $1, x, 32(at)(R8*1); VEXTRACTPS $2, x, 32(at)(R8*2); VEXTRACTPS $3, x, 32(at)(R13*1)

// func winogradBackAVX2(dst *float32, step int, src *float32, xi, n int)
TEXT ·winogradBackAVX2(SB), NOSPLIT, $288-40
	MOVQ dst+0(FP), SI
	MOVQ step+8(FP), R8
	SHLQ $2, R8
	LEAQ (R8)(R8*2), R13
	LEAQ (SI)(R8*4), R9
	MOVQ src+16(FP), DI
	STEPS(xi+24(FP))
	MOVQ n+32(FP), CX
	MOVL $0x3f000000, AX
	MOVQ AX, X15
	VBROADCASTSS X15, Y15
	LEAQ windows-288(SP), AX
eight:
	LEAQ (DI)(R10*1), DX
	HALVES(VADDPS)
	MOVQ DI, DX
	PLUS
	BACK_STORE(0)
	LEAQ (DI)(R10*1), DX
	HALVES(VSUBPS)
	BACK_STORE(32)
	LEAQ (DI)(R10*1), DX
	HALVES(VADDPS)
	NEXT_COLUMN
	PLUS
	BACK_STORE(64)
	WINDOWS_BACK(0, 0)
	WINDOWS_BACK(128, 16)
	VMOVUPS 256(AX), Y0
	VEXTRACTF128 $1, Y0, X1
	LAST_BACK(X0, SI)
	LAST_BACK(X1, R9)
	LEAQ (SI)(R8*8), SI
	LEAQ (R9)(R8*8), R9
	ADDQ $32, DI
	SUBQ $8, CX
	JNZ eight
	VZEROUPPER
	RET
