#include "textflag.h"

// Interleaved weights whose 4-bit codes stand for the sixteen integers of a table, see table.go
// and quant/interleaved4.go. Lower and upper bytes of the integers are in Y13 and Y14.

DATA nibbles<>+0(SB)/8, $0x0f0f0f0f0f0f0f0f
GLOBL nibbles<>(SB), RODATA|NOPTR, $8

// Codes become integers: pairs of lower and upper bytes, of two of four pairs of elements each in lo and hi.
#define LOOK(codes, t, lo, hi) \
	VPSHUFB codes, Y13, hi; VPSHUFB codes, Y14, t; \
	VPUNPCKLBW t, hi, lo; VPUNPCKHBW t, hi, hi

#define TABLE \
	VPBROADCASTQ nibbles<>(SB), Y15; VBROADCASTI128 (AX), Y13; VBROADCASTI128 16(AX), Y14

// Codes of eight elements of eight rows at o of SI: those of the first four are Y8, those of the others Y9.
#define CODES(o) VMOVDQU (o)(SI), Y8; VPSRLW $4, Y8, Y9; VPAND Y15, Y8, Y8; VPAND Y15, Y9, Y9

// Integers times inputs at x of DX are added to sums in Y1 and Y12, so that additions seldom wait for each other.
// Inputs are loaded first, so that instructions that need each other are far apart.
#define INPUTS(x) VPBROADCASTD (x)(DX), Y4; VPBROADCASTD (x+4)(DX), Y5; VPBROADCASTD (x+8)(DX), Y6; VPBROADCASTD (x+12)(DX), Y7
#define BEGIN(lo, hi, x, y) VPMADDWD lo, x, Y1; VPMADDWD hi, y, Y12
#define MORE(lo, hi, x, y) VPMADDWD lo, x, lo; VPADDD lo, Y1, Y1; VPMADDWD hi, y, hi; VPADDD hi, Y12, Y12
#define EIGHT(o, x, FIRST) \
	INPUTS(x); CODES(o); \
	LOOK(Y8, Y10, Y11, Y3); FIRST(Y11, Y3, Y4, Y5); \
	LOOK(Y9, Y10, Y11, Y3); MORE(Y11, Y3, Y6, Y7)

#define HALF(o) \
	EIGHT(o, 0, BEGIN); EIGHT(o+32, 16, MORE); EIGHT(o+64, 32, MORE); EIGHT(o+96, 48, MORE); \
	VPADDD Y12, Y1, Y1; \
	VCVTDQ2PS Y1, Y1; VBROADCASTSS (BX), Y7; VMULPS Y2, Y7, Y7; VFMADD231PS Y7, Y1, Y0; \
	ADDQ $64, DX; ADDQ $16, BX

// Eight elements of eight rows at o of SI as pairs, from pair p on.
#define PUT_EIGHT(o, p) \
	CODES(o); \
	LOOK(Y8, Y10, Y11, Y3); VMOVDQU Y11, (64*p)(DI); VMOVDQU Y3, (64*p+64)(DI); \
	LOOK(Y9, Y10, Y11, Y3); VMOVDQU Y11, (64*p+128)(DI); VMOVDQU Y3, (64*p+192)(DI)

// Look one code up: of codes at R9 in values at R11, to R10. Loads of single numbers take less than
// a gather.
#define LOOK_UP(i) MOVBLZX i(R9), R12; MOVL (R11)(R12*4), R13; MOVL R13, (4*i)(R10)

// func matvecTableAVX2(w *byte, x *int16, records *record, dst, scales *float32, table *[32]byte, blocks int, next lookup)
TEXT ·matvecTableAVX2(SB), NOSPLIT, $0-80
	MOVQ w+0(FP), SI
	MOVQ x+8(FP), DX
	MOVQ records+16(FP), BX
	MOVQ dst+24(FP), DI
	MOVQ scales+32(FP), R8
	MOVQ table+40(FP), AX
	MOVQ blocks+48(FP), CX
	MOVQ next_dst+56(FP), R10
	MOVQ next_codes+64(FP), R9
	MOVQ next_values+72(FP), R11
	TABLE
	VXORPS Y0, Y0, Y0
block:
	PREFETCHT0 2048(SI)
	PREFETCHT0 2112(SI)
	PREFETCHT0 2176(SI)
	PREFETCHT0 2240(SI)
	PREFETCHT0 1024(R9)
	VMOVUPS (R8), Y2
	LOOK_UP(0)
	LOOK_UP(1)
	LOOK_UP(2)
	LOOK_UP(3)
	HALF(0)
	LOOK_UP(4)
	LOOK_UP(5)
	LOOK_UP(6)
	LOOK_UP(7)
	HALF(128)
	ADDQ $256, SI
	ADDQ $32, R8
	ADDQ $8, R9
	ADDQ $32, R10
	DECQ CX
	JNZ block
	VMOVUPS Y0, (DI)
	VZEROUPPER
	RET

// func unpackTableAVX2(w *byte, pairs *int16, table *[32]byte, blocks int)
TEXT ·unpackTableAVX2(SB), NOSPLIT, $0-32
	MOVQ w+0(FP), SI
	MOVQ pairs+8(FP), DI
	MOVQ table+16(FP), AX
	MOVQ blocks+24(FP), CX
	SHLQ $1, CX
	TABLE
half:
	PUT_EIGHT(0, 0)
	PUT_EIGHT(32, 4)
	PUT_EIGHT(64, 8)
	PUT_EIGHT(96, 12)
	ADDQ $128, SI
	ADDQ $1024, DI
	DECQ CX
	JNZ half
	VZEROUPPER
	RET

// func lookAVX2(l lookup, blocks int)
TEXT ·lookAVX2(SB), NOSPLIT, $0-32
	MOVQ l_dst+0(FP), R10
	MOVQ l_codes+8(FP), R9
	MOVQ l_values+16(FP), R11
	MOVQ blocks+24(FP), CX
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
	VBROADCASTSS s_offset+16(FP), Y2
	VBROADCASTSS s_factor+20(FP), Y3
	MOVQ blocks+24(FP), CX
scales:
	VMULPS (DI), Y1, Y6
	VADDPS Y2, Y6, Y6
	VMULPS Y3, Y6, Y6
	VMOVUPS Y6, (DI)
	ADDQ $32, DI
	DECQ CX
	JNZ scales
	VZEROUPPER
	RET
