#include "textflag.h"

// Interleaved weights whose 4-bit codes stand for the sixteen integers of a table, see table.go
// and quant/interleaved4.go. Lower and upper bytes of the integers are in Y13 and Y14.

DATA nibbles<>+0(SB)/8, $0x0f0f0f0f0f0f0f0f
GLOBL nibbles<>(SB), RODATA|NOPTR, $8

#define LOOK(codes, p, USE0, USE1) \
	VPSHUFB codes, Y13, Y5; VPSHUFB codes, Y14, Y6; \
	VPUNPCKLBW Y6, Y5, Y7; USE0(Y7, Y8, p); \
	VPUNPCKHBW Y6, Y5, Y7; USE1(Y7, Y9, (p+1))

// Eight elements of eight rows at o of SI, from pair p on.
#define EIGHT(o, p, FIRST0, FIRST1, USE0, USE1) \
	VMOVDQU (o)(SI), Y3; \
	VPAND Y15, Y3, Y4; LOOK(Y4, p, FIRST0, FIRST1); \
	VPSRLW $4, Y3, Y3; VPAND Y15, Y3, Y3; LOOK(Y3, (p+2), USE0, USE1)

#define ELEMENTS(o, FIRST0, FIRST1, USE0, USE1) \
	EIGHT(o, 0, FIRST0, FIRST1, USE0, USE1); EIGHT(o+32, 4, USE0, USE1, USE0, USE1); \
	EIGHT(o+64, 8, USE0, USE1, USE0, USE1); EIGHT(o+96, 12, USE0, USE1, USE0, USE1)

#define TABLE \
	VPBROADCASTQ nibbles<>(SB), Y15; VBROADCASTI128 (AX), Y13; VBROADCASTI128 16(AX), Y14

// Sums are in Y1 and Y12, so that additions seldom wait for each other.
#define BEGIN0(w, t, p) VPBROADCASTD (4*p)(DX), t; VPMADDWD w, t, Y1
#define BEGIN1(w, t, p) VPBROADCASTD (4*p)(DX), t; VPMADDWD w, t, Y12
#define DOT0(w, t, p) VPBROADCASTD (4*p)(DX), t; VPMADDWD w, t, t; VPADDD t, Y1, Y1
#define DOT1(w, t, p) VPBROADCASTD (4*p)(DX), t; VPMADDWD w, t, t; VPADDD t, Y12, Y12
#define PUT(w, t, p) VMOVDQU w, (64*p)(DI)

#define HALF(o) \
	ELEMENTS(o, BEGIN0, BEGIN1, DOT0, DOT1); \
	VPADDD Y12, Y1, Y1; \
	VCVTDQ2PS Y1, Y1; VBROADCASTSS (BX), Y7; VMULPS Y2, Y7, Y7; VFMADD231PS Y7, Y1, Y0; \
	ADDQ $64, DX; ADDQ $16, BX

// Look one code up: of codes at R9 in values at R11, to R10. Loads of single numbers take less than
// a gather.
#define LOOK_UP(i) MOVBLZX i(R9), R12; MOVL (R11)(R12*4), R13; MOVL R13, (4*i)(R10)

// func matvecTableAVX2(w *byte, x *int16, records *record, dst *float32, s scaling, table *[32]byte, blocks int, next lookup)
TEXT ·matvecTableAVX2(SB), NOSPLIT, $32-96
	MOVQ w+0(FP), SI
	MOVQ x+8(FP), DX
	MOVQ records+16(FP), BX
	MOVQ dst+24(FP), DI
	MOVQ s_x+32(FP), R8
	MOVQ s_groups+40(FP), AX
	VMOVUPS (AX), Y10
	VBROADCASTSS s_offset+48(FP), Y11
	VBROADCASTSS s_factor+52(FP), Y12
	VMOVUPS Y12, (SP)
	MOVQ table+56(FP), AX
	MOVQ blocks+64(FP), CX
	MOVQ next_dst+72(FP), R10
	MOVQ next_codes+80(FP), R9
	MOVQ next_values+88(FP), R11
	TABLE
	VMOVUPS (DI), Y0
block:
	PREFETCHT0 2048(SI)
	PREFETCHT0 2112(SI)
	PREFETCHT0 2176(SI)
	PREFETCHT0 2240(SI)
	PREFETCHT0 1024(R9)
	VMULPS (R8), Y10, Y2
	VADDPS Y11, Y2, Y2
	VMULPS (SP), Y2, Y2
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
	ELEMENTS(0, PUT, PUT, PUT, PUT)
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
