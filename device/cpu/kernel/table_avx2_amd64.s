#include "textflag.h"

// Interleaved weights whose 4-bit codes stand for the sixteen integers of a table, see table.go
// and quant/interleaved4.go. Lower and upper bytes of the integers are in Y13 and Y14.

DATA nibbles<>+0(SB)/8, $0x0f0f0f0f0f0f0f0f
GLOBL nibbles<>(SB), RODATA|NOPTR, $8

// Of four rows, their even bytes and then the odd ones: bytes of elements 0 and 1 (4 and 5) of each row, then those of 2 and 3 (6 and 7).
DATA evens<>+0(SB)/8, $0x0e0c0a0806040200
DATA evens<>+8(SB)/8, $0x0f0d0b0907050301
DATA evens<>+16(SB)/8, $0x0e0c0a0806040200
DATA evens<>+24(SB)/8, $0x0f0d0b0907050301
GLOBL evens<>(SB), RODATA|NOPTR, $32

// Codes become integers: pairs of lower and upper bytes, of two of four pairs of elements each in lo and hi.
#define LOOK(codes, t, lo, hi) \
	VPSHUFB codes, Y13, hi; VPSHUFB codes, Y14, t; \
	VPUNPCKLBW t, hi, lo; VPUNPCKHBW t, hi, hi

#define TABLE \
	VPBROADCASTQ nibbles<>(SB), Y15; VBROADCASTI128 (AX), Y13; VBROADCASTI128 16(AX), Y14

// Codes of eight elements of eight rows at o of SI: those of the first four are Y8, those of the others Y9.
#define CODES(o) VMOVDQU (o)(SI), Y8; VPSHUFB evens<>(SB), Y8, Y8; VPSRLW $4, Y8, Y9; VPAND Y15, Y8, Y8; VPAND Y15, Y9, Y9

// Integers times inputs at x of DX begin sums or are added to them, those of the first eight rows in Y2 and those of the
// others in Y3.
#define INPUTS(x) VPBROADCASTD (x)(DX), Y4; VPBROADCASTD (x+4)(DX), Y5; VPBROADCASTD (x+8)(DX), Y6; VPBROADCASTD (x+12)(DX), Y7
#define BEGIN(x, y, sums) VPMADDWD Y11, x, sums; VPMADDWD Y12, y, Y12; VPADDD Y12, sums, sums
#define MORE(x, y, sums) VPMADDWD Y11, x, Y11; VPADDD Y11, sums, sums; VPMADDWD Y12, y, Y12; VPADDD Y12, sums, sums
#define ROWS(o, FIRST, sums) \
	CODES(o); \
	LOOK(Y8, Y10, Y11, Y12); FIRST(Y4, Y5, sums); \
	LOOK(Y9, Y10, Y11, Y12); MORE(Y6, Y7, sums)
#define EIGHT(o, x, FIRST) \
	PREFETCHT0 (2048+o)(SI); INPUTS(x); ROWS(o, FIRST, Y2); ROWS(o+32, FIRST, Y3)

#define HALF(o) \
	EIGHT(o, 0, BEGIN); EIGHT(o+64, 16, MORE); EIGHT(o+128, 32, MORE); EIGHT(o+192, 48, MORE); \
	VBROADCASTSS (BX), Y4; \
	VCVTDQ2PS Y2, Y2; VMULPS (R8), Y4, Y5; VFMADD231PS Y5, Y2, Y0; \
	VCVTDQ2PS Y3, Y3; VMULPS 32(R8), Y4, Y6; VFMADD231PS Y6, Y3, Y1; \
	ADDQ $64, DX; ADDQ $16, BX

// Eight elements of eight rows at o of SI as pairs at p of DI.
#define PUT_EIGHT(o, p) \
	CODES(o); \
	LOOK(Y8, Y10, Y11, Y12); VMOVDQU Y11, (p)(DI); VMOVDQU Y12, (p+64)(DI); \
	LOOK(Y9, Y10, Y11, Y12); VMOVDQU Y11, (p+128)(DI); VMOVDQU Y12, (p+192)(DI)

// Look one code up: of codes at R9 in values at R11, to R10. Loads of single numbers take less than
// a gather.
#define LOOK_UP(i) MOVBLZX i(R9), R12; MOVL (R11)(R12*4), R13; MOVL R13, (4*i)(R10)

// func matvecTableAVX2(w *byte, x *int16, records *record, dst *float32, table *[32]byte, blocks int, scales scaling, next lookup)
TEXT ·matvecTableAVX2(SB), NOSPLIT, $0-96
	MOVQ w+0(FP), SI
	MOVQ x+8(FP), DX
	MOVQ records+16(FP), BX
	MOVQ dst+24(FP), DI
	MOVQ table+32(FP), AX
	MOVQ blocks+40(FP), CX
	MOVQ scales_x+48(FP), R8
	MOVQ next_dst+72(FP), R10
	MOVQ next_codes+80(FP), R9
	MOVQ next_values+88(FP), R11
	TABLE
	MOVQ scales_groups+56(FP), AX
	VMOVUPS (DI), Y0
	VMOVUPS 32(DI), Y1
block:
	VBROADCASTSS scales_offset+64(FP), Y4
	VBROADCASTSS scales_factor+68(FP), Y5
	VMOVUPS (R8), Y6
	VMOVUPS 32(R8), Y7
	VMULPS (AX), Y6, Y6
	VMULPS 32(AX), Y7, Y7
	VADDPS Y4, Y6, Y6
	VADDPS Y4, Y7, Y7
	VMULPS Y5, Y6, Y6
	VMULPS Y5, Y7, Y7
	VMOVUPS Y6, (R8)
	VMOVUPS Y7, 32(R8)
	PREFETCHT0 1024(R9)
	LOOK_UP(0)
	LOOK_UP(1)
	LOOK_UP(2)
	LOOK_UP(3)
	LOOK_UP(4)
	LOOK_UP(5)
	LOOK_UP(6)
	LOOK_UP(7)
	HALF(0)
	LOOK_UP(8)
	LOOK_UP(9)
	LOOK_UP(10)
	LOOK_UP(11)
	LOOK_UP(12)
	LOOK_UP(13)
	LOOK_UP(14)
	LOOK_UP(15)
	HALF(256)
	ADDQ $512, SI
	ADDQ $64, R8
	ADDQ $16, R9
	ADDQ $64, R10
	DECQ CX
	JNZ block
	VMOVUPS Y0, (DI)
	VMOVUPS Y1, 32(DI)
	VZEROUPPER
	RET

// func unpackTableAVX2(w *byte, pairs *int16, table *[32]byte, blocks int)
TEXT ·unpackTableAVX2(SB), NOSPLIT, $0-32
	MOVQ w+0(FP), SI
	MOVQ pairs+8(FP), DI
	MOVQ table+16(FP), AX
	MOVQ blocks+24(FP), CX
	SHLQ $3, CX
	TABLE
eight:
	PUT_EIGHT(0, 0)
	PUT_EIGHT(32, 32)
	ADDQ $64, SI
	ADDQ $256, DI
	DECQ CX
	JNZ eight
	VZEROUPPER
	RET

// func lookAVX2(l lookup, blocks int)
TEXT ·lookAVX2(SB), NOSPLIT, $0-32
	MOVQ l_dst+0(FP), R10
	MOVQ l_codes+8(FP), R9
	MOVQ l_values+16(FP), R11
	MOVQ blocks+24(FP), CX
	SHLQ $1, CX
block:
	LOOK_UP(0)
	LOOK_UP(1)
	LOOK_UP(2)
	LOOK_UP(3)
	LOOK_UP(4)
	LOOK_UP(5)
	LOOK_UP(6)
	LOOK_UP(7)
	ADDQ $8, R9
	ADDQ $32, R10
	DECQ CX
	JNZ block
	RET

// func absmaxAVX2(s scaling, blocks int)
TEXT ·absmaxAVX2(SB), NOSPLIT, $0-32
	MOVQ s_x+0(FP), DI
	MOVQ s_groups+8(FP), DX
	VMOVUPS (DX), Y1
	VMOVUPS 32(DX), Y4
	VBROADCASTSS s_offset+16(FP), Y2
	VBROADCASTSS s_factor+20(FP), Y3
	MOVQ blocks+24(FP), CX
scales:
	VMULPS (DI), Y1, Y6
	VMULPS 32(DI), Y4, Y7
	VADDPS Y2, Y6, Y6
	VADDPS Y2, Y7, Y7
	VMULPS Y3, Y6, Y6
	VMULPS Y3, Y7, Y7
	VMOVUPS Y6, (DI)
	VMOVUPS Y7, 32(DI)
	ADDQ $64, DI
	DECQ CX
	JNZ scales
	VZEROUPPER
	RET
