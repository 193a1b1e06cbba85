#include "textflag.h"

// Depthwise convolutions with windows of 3 × 3 places for AVX-512, see Three in depthwisethree.go: two places of 4, 2 or 1 lines of y
// after another, and of these 16 channels after another, so that memory is read and written in order.
//
//	SI, R8 to R12  lines of x, at the first of four columns    R15  bytes from column to column, R13 three times as many
//	DI  y, R14 bytes from line to line, BX the third line      DX   weights or sums
//	CX  whole vectors left                                     K1   channels of the next vector
//	K2 to K5  those of columns inside                          K6   those of the second place
//
// Weights, or their sums, of row y and column x of a window live in Z(3y+x); place p of line r of y, or its gradient, in Z(9+2r+p).

#define COLUMN0(line) (line)
#define COLUMN1(line) (line)(R15*1)
#define COLUMN2(line) (line)(R15*2)
#define COLUMN3(line) (line)(R13*1)

// A vector of x, also of a column that may lie outside.
#define GET(at, k, z) VMOVUPS at, z
#define GET_INSIDE(at, k, z) VMOVUPS.Z at, k, z

// What a vector of x and a weight give to y, and what it and a gradient of y give to the weight.
#define FORWARD(x, w, y) VFMADD231PS w, x, y
#define BACK(x, w, y) VFMADD231PS y, x, w

// A column of x that meets a column of a window, w0 to w2, of one place of lines y0 to y3.
#define MEET4(LOAD, AT, k, M, w0, w1, w2, y0, y1, y2, y3) \
	LOAD(AT(SI), k, Z17); M(Z17, w0, y0); \
	LOAD(AT(R8), k, Z18); M(Z18, w1, y0); M(Z18, w0, y1); \
	LOAD(AT(R9), k, Z19); M(Z19, w2, y0); M(Z19, w1, y1); M(Z19, w0, y2); \
	LOAD(AT(R10), k, Z20); M(Z20, w2, y1); M(Z20, w1, y2); M(Z20, w0, y3); \
	LOAD(AT(R11), k, Z21); M(Z21, w2, y2); M(Z21, w1, y3); \
	LOAD(AT(R12), k, Z22); M(Z22, w2, y3)
#define MEET2(LOAD, AT, k, M, w0, w1, w2, y0, y1, y2, y3) \
	LOAD(AT(SI), k, Z17); M(Z17, w0, y0); \
	LOAD(AT(R8), k, Z18); M(Z18, w1, y0); M(Z18, w0, y1); \
	LOAD(AT(R9), k, Z19); M(Z19, w2, y0); M(Z19, w1, y1); \
	LOAD(AT(R10), k, Z20); M(Z20, w2, y1)
#define MEET1(LOAD, AT, k, M, w0, w1, w2, y0, y1, y2, y3) \
	LOAD(AT(SI), k, Z17); M(Z17, w0, y0); \
	LOAD(AT(R8), k, Z18); M(Z18, w1, y0); \
	LOAD(AT(R9), k, Z19); M(Z19, w2, y0)

// A column of x that meets a column of the window of the first place, w0 to w2, and the one before, v0 to v2, of the second.
#define BOTH4(LOAD, AT, k, M, w0, w1, w2, v0, v1, v2) \
	LOAD(AT(SI), k, Z17); M(Z17, w0, Z9); M(Z17, v0, Z10); \
	LOAD(AT(R8), k, Z18); M(Z18, w1, Z9); M(Z18, v1, Z10); M(Z18, w0, Z11); M(Z18, v0, Z12); \
	LOAD(AT(R9), k, Z19); M(Z19, w2, Z9); M(Z19, v2, Z10); M(Z19, w1, Z11); M(Z19, v1, Z12); M(Z19, w0, Z13); M(Z19, v0, Z14); \
	LOAD(AT(R10), k, Z20); M(Z20, w2, Z11); M(Z20, v2, Z12); M(Z20, w1, Z13); M(Z20, v1, Z14); M(Z20, w0, Z15); M(Z20, v0, Z16); \
	LOAD(AT(R11), k, Z21); M(Z21, w2, Z13); M(Z21, v2, Z14); M(Z21, w1, Z15); M(Z21, v1, Z16); \
	LOAD(AT(R12), k, Z22); M(Z22, w2, Z15); M(Z22, v2, Z16)
#define BOTH2(LOAD, AT, k, M, w0, w1, w2, v0, v1, v2) \
	LOAD(AT(SI), k, Z17); M(Z17, w0, Z9); M(Z17, v0, Z10); \
	LOAD(AT(R8), k, Z18); M(Z18, w1, Z9); M(Z18, v1, Z10); M(Z18, w0, Z11); M(Z18, v0, Z12); \
	LOAD(AT(R9), k, Z19); M(Z19, w2, Z9); M(Z19, v2, Z10); M(Z19, w1, Z11); M(Z19, v1, Z12); \
	LOAD(AT(R10), k, Z20); M(Z20, w2, Z11); M(Z20, v2, Z12)
#define BOTH1(LOAD, AT, k, M, w0, w1, w2, v0, v1, v2) \
	LOAD(AT(SI), k, Z17); M(Z17, w0, Z9); M(Z17, v0, Z10); \
	LOAD(AT(R8), k, Z18); M(Z18, w1, Z9); M(Z18, v1, Z10); \
	LOAD(AT(R9), k, Z19); M(Z19, w2, Z9); M(Z19, v2, Z10)

#define COLUMNS(MEET, BOTH, LOAD, M) \
	MEET(LOAD, COLUMN0, K2, M, Z0, Z3, Z6, Z9, Z11, Z13, Z15); \
	BOTH(LOAD, COLUMN1, K3, M, Z1, Z4, Z7, Z0, Z3, Z6); \
	BOTH(LOAD, COLUMN2, K4, M, Z2, Z5, Z8, Z1, Z4, Z7); \
	MEET(LOAD, COLUMN3, K5, M, Z2, Z5, Z8, Z10, Z12, Z14, Z16)

// Nine rows at DX.
#define NINE_IN \
	VMOVUPS (DX), Z0; VMOVUPS 64(DX), Z1; VMOVUPS 128(DX), Z2; VMOVUPS 192(DX), Z3; VMOVUPS 256(DX), Z4; \
	VMOVUPS 320(DX), Z5; VMOVUPS 384(DX), Z6; VMOVUPS 448(DX), Z7; VMOVUPS 512(DX), Z8
#define NINE_OUT \
	VMOVUPS Z0, (DX); VMOVUPS Z1, 64(DX); VMOVUPS Z2, 128(DX); VMOVUPS Z3, 192(DX); VMOVUPS Z4, 256(DX); \
	VMOVUPS Z5, 320(DX); VMOVUPS Z6, 384(DX); VMOVUPS Z7, 448(DX); VMOVUPS Z8, 512(DX); ADDQ $576, DX

// Places of y begin with the bias, the tenth row.
#define BEGIN1 VMOVUPS 576(DX), Z9; VMOVAPS Z9, Z10; ADDQ $640, DX
#define BEGIN2 BEGIN1; VMOVAPS Z9, Z11; VMOVAPS Z9, Z12
#define BEGIN4 BEGIN2; VMOVAPS Z9, Z13; VMOVAPS Z9, Z14; VMOVAPS Z9, Z15; VMOVAPS Z9, Z16

// All places of y: op is what happens to one.
#define PLACES1(OP) LEAQ (DI)(R15*1), AX; OP((DI), K1, Z9); OP((AX), K6, Z10)
#define PLACES2(OP) PLACES1(OP); OP((DI)(R14*1), K1, Z11); OP((AX)(R14*1), K6, Z12)
#define PLACES4(OP) \
	PLACES2(OP); LEAQ (DI)(R14*2), BX; OP((BX), K1, Z13); OP((BX)(R14*1), K1, Z15); \
	ADDQ R15, BX; OP((BX), K6, Z14); OP((BX)(R14*1), K6, Z16)
#define PUT(at, k, z) VMOVUPS z, at
#define PUT_INSIDE(at, k, z) VMOVUPS z, k, at

// What the next places need is fetched: AHEAD bytes, of the two columns that are new.
#define AHEAD 1152
#define FETCH1 \
	PREFETCHT0 AHEAD(SI)(R15*2); PREFETCHT0 AHEAD(SI)(R13*1); PREFETCHT0 AHEAD(R8)(R15*2); PREFETCHT0 AHEAD(R8)(R13*1); \
	PREFETCHT0 AHEAD(R9)(R15*2); PREFETCHT0 AHEAD(R9)(R13*1)
#define FETCH2 FETCH1; PREFETCHT0 AHEAD(R10)(R15*2); PREFETCHT0 AHEAD(R10)(R13*1)
#define FETCH4 FETCH2; PREFETCHT0 AHEAD(R11)(R15*2); PREFETCHT0 AHEAD(R11)(R13*1); PREFETCHT0 AHEAD(R12)(R15*2); PREFETCHT0 AHEAD(R12)(R13*1)

// The same for gradients of weights, with those of y: of the lines that the piece before has seen nothing is fetched.
#define FETCH_BACK1 PREFETCHT0 AHEAD(R9)(R15*2); PREFETCHT0 AHEAD(R9)(R13*1); PREFETCHT0 AHEAD(DI); PREFETCHT0 AHEAD(AX)
#define FETCH_BACK2 FETCH_BACK1; PREFETCHT0 AHEAD(R10)(R15*2); PREFETCHT0 AHEAD(R10)(R13*1); PREFETCHT0 AHEAD(DI)(R14*1); PREFETCHT0 AHEAD(AX)(R14*1)
#define FETCH_BACK4 \
	FETCH_BACK2; PREFETCHT0 AHEAD(R11)(R15*2); PREFETCHT0 AHEAD(R11)(R13*1); PREFETCHT0 AHEAD(R12)(R15*2); PREFETCHT0 AHEAD(R12)(R13*1); \
	PREFETCHT0 AHEAD(BX); PREFETCHT0 AHEAD(BX)(R14*1); SUBQ R15, BX; PREFETCHT0 AHEAD(BX); PREFETCHT0 AHEAD(BX)(R14*1)

#define NEXT ADDQ $64, SI; ADDQ $64, R8; ADDQ $64, R9; ADDQ $64, R10; ADDQ $64, R11; ADDQ $64, R12; ADDQ $64, DI
#define MOVE(by) ADDQ by, SI; ADDQ by, R8; ADDQ by, R9; ADDQ by, R10; ADDQ by, R11; ADDQ by, R12; ADDQ by, DI

// A column is inside where its number, in AX, is below that of columns: BX are the pairs' masks that hold for all of them.
#define INSIDE(k) CMPQ AX, 80(DX); SBBQ CX, CX; KMOVW CX, k; ANDQ CX, BX; INCQ AX

// WHOLE and SOME are a vector inside, and one that may lie partly outside. On the stack are the first column of the pair and the
// number of places left.
#define PAIRS(WHOLE, SOME, FROM) \
	MOVQ t+0(FP), DX; MOVQ 0(DX), SI; MOVQ 8(DX), R8; MOVQ 16(DX), R9; MOVQ 24(DX), R10; MOVQ 32(DX), R11; MOVQ 40(DX), R12; \
	MOVQ 56(DX), DI; MOVQ 64(DX), R14; SHLQ $2, R14; MOVQ 104(DX), R15; SHLQ $2, R15; LEAQ (R15)(R15*2), R13; \
	MOVQ 80(DX), BX; SUBQ 88(DX), BX; ADDQ 96(DX), BX; MOVQ BX, left-8(SP); \
	MOVQ 88(DX), AX; SUBQ $2, AX; MOVQ AX, first-16(SP); \
	IMULQ R15, AX; ADDQ AX, SI; ADDQ AX, R8; ADDQ AX, R9; ADDQ AX, R10; ADDQ AX, R11; ADDQ AX, R12; \
pair: \
	MOVQ t+0(FP), DX; MOVQ first-16(SP), AX; MOVQ $-1, BX; KMOVW BX, K1; \
	INSIDE(K2); INSIDE(K3); INSIDE(K4); INSIDE(K5); \
	MOVQ $1, AX; CMPQ AX, left-8(SP); SBBQ CX, CX; KMOVW CX, K6; ANDQ CX, BX; \
	MOVQ 104(DX), CX; MOVQ CX, AX; ANDQ $15, AX; MOVQ AX, rest-24(SP); SHRQ $4, CX; MOVQ FROM(DX), DX; \
	TESTQ CX, CX; JZ tail; \
	TESTQ BX, BX; JZ edge; \
whole: \
	WHOLE; NEXT; DECQ CX; JNZ whole; \
	JMP tail; \
edge: \
	SOME; NEXT; DECQ CX; JNZ edge; \
tail: \
	MOVQ rest-24(SP), CX; TESTQ CX, CX; JZ next; \
	MOVQ $1, AX; SHLQ CX, AX; DECQ AX; KMOVW AX, K1; \
	KANDW K1, K2, K2; KANDW K1, K3, K3; KANDW K1, K4, K4; KANDW K1, K5, K5; KANDW K1, K6, K6; \
	SOME; \
	SHLQ $2, CX; MOVE(CX); \
next: \
	MOVE(R15); \
	ADDQ $2, first-16(SP); SUBQ $2, left-8(SP); JGT pair; \
	VZEROUPPER; \
	RET

#define CONVOLVE(MEET, BOTH, LOAD, BEGIN, PLACES, PUT) NINE_IN; BEGIN; COLUMNS(MEET, BOTH, LOAD, FORWARD); PLACES(PUT)
#define ADD(MEET, BOTH, LOAD, PLACES) NINE_IN; PLACES(LOAD); COLUMNS(MEET, BOTH, LOAD, BACK); NINE_OUT

// func three4AVX512(t *Three)
TEXT ·three4AVX512(SB), NOSPLIT, $24-8
	PAIRS(CONVOLVE(MEET4, BOTH4, GET, BEGIN4, PLACES4, PUT); FETCH4, CONVOLVE(MEET4, BOTH4, GET_INSIDE, BEGIN4, PLACES4, PUT_INSIDE), 48)

// func three2AVX512(t *Three)
TEXT ·three2AVX512(SB), NOSPLIT, $24-8
	PAIRS(CONVOLVE(MEET2, BOTH2, GET, BEGIN2, PLACES2, PUT); FETCH2, CONVOLVE(MEET2, BOTH2, GET_INSIDE, BEGIN2, PLACES2, PUT_INSIDE), 48)

// func three1AVX512(t *Three)
TEXT ·three1AVX512(SB), NOSPLIT, $24-8
	PAIRS(CONVOLVE(MEET1, BOTH1, GET, BEGIN1, PLACES1, PUT); FETCH1, CONVOLVE(MEET1, BOTH1, GET_INSIDE, BEGIN1, PLACES1, PUT_INSIDE), 48)

// func threeWeights4AVX512(t *Three)
TEXT ·threeWeights4AVX512(SB), NOSPLIT, $24-8
	PAIRS(ADD(MEET4, BOTH4, GET, PLACES4); FETCH_BACK4, ADD(MEET4, BOTH4, GET_INSIDE, PLACES4), 112)

// func threeWeights2AVX512(t *Three)
TEXT ·threeWeights2AVX512(SB), NOSPLIT, $24-8
	PAIRS(ADD(MEET2, BOTH2, GET, PLACES2); FETCH_BACK2, ADD(MEET2, BOTH2, GET_INSIDE, PLACES2), 112)

// func threeWeights1AVX512(t *Three)
TEXT ·threeWeights1AVX512(SB), NOSPLIT, $24-8
	PAIRS(ADD(MEET1, BOTH1, GET, PLACES1); FETCH_BACK1, ADD(MEET1, BOTH1, GET_INSIDE, PLACES1), 112)
