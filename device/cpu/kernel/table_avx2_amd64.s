#include "textflag.h"

// Interleaved weights whose 4-bit codes stand for the sixteen integers of a table, see table.go
// and quant/interleaved4.go. Lower and upper bytes of the integers are in Y13 and Y14.

DATA nibbles<>+0(SB)/8, $0x0f0f0f0f0f0f0f0f
GLOBL nibbles<>(SB), RODATA|NOPTR, $8

#define LOOK(codes, p, USE) \
	VPSHUFB codes, Y13, Y5; VPSHUFB codes, Y14, Y6; \
	VPUNPCKLBW Y6, Y5, Y7; USE(Y7, Y8, p); \
	VPUNPCKHBW Y6, Y5, Y7; USE(Y7, Y9, (p+1))

// Eight elements of eight rows at o of SI, from pair p on.
#define EIGHT(o, p, USE) \
	VMOVDQU (o)(SI), Y3; \
	VPAND Y15, Y3, Y4; LOOK(Y4, p, USE); \
	VPSRLW $4, Y3, Y3; VPAND Y15, Y3, Y3; LOOK(Y3, (p+2), USE)

#define ELEMENTS(o, USE) EIGHT(o, 0, USE); EIGHT(o+32, 4, USE); EIGHT(o+64, 8, USE); EIGHT(o+96, 12, USE)

#define TABLE \
	VPBROADCASTQ nibbles<>(SB), Y15; VBROADCASTI128 (AX), Y13; VBROADCASTI128 16(AX), Y14

#define DOT(w, t, p) VPBROADCASTD (4*p)(DX), t; VPMADDWD w, t, t; VPADDD t, Y1, Y1
#define PUT(w, t, p) VMOVDQU w, (64*p)(DI)

#define HALF(o) \
	VPXOR Y1, Y1, Y1; \
	ELEMENTS(o, DOT); \
	VCVTDQ2PS Y1, Y1; VBROADCASTSS (BX), Y7; VMULPS Y2, Y7, Y7; VFMADD231PS Y7, Y1, Y0; \
	ADDQ $64, DX; ADDQ $16, BX

// func matvecTableAVX2(w *byte, x *int16, records *record, dst, scales *float32, table *[32]byte, blocks int)
TEXT ·matvecTableAVX2(SB), NOSPLIT, $0-56
	MOVQ w+0(FP), SI
	MOVQ x+8(FP), DX
	MOVQ records+16(FP), BX
	MOVQ dst+24(FP), DI
	MOVQ scales+32(FP), R8
	MOVQ table+40(FP), AX
	MOVQ blocks+48(FP), CX
	TABLE
	VXORPS Y0, Y0, Y0
block:
	PREFETCHT0 2048(SI)
	PREFETCHT0 2112(SI)
	PREFETCHT0 2176(SI)
	PREFETCHT0 2240(SI)
	VMOVUPS (R8), Y2
	HALF(0)
	HALF(128)
	ADDQ $256, SI
	ADDQ $32, R8
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
	ELEMENTS(0, PUT)
	ADDQ $128, SI
	ADDQ $1024, DI
	DECQ CX
	JNZ half
	VZEROUPPER
	RET

// Look one code up. Loads of single numbers take less than a gather.
#define LOOK_UP(i) MOVBLZX i(SI), R9; MOVL (AX)(R9*4), R10; MOVL R10, (4*i)(DI)

// func absmaxAVX2(dst *float32, codes *byte, n int, values *[256]float32, groups *[8]float32, offset, factor float32)
// dst[i] = (values[codes[i]] · groups[i mod 8] + offset) · factor, for eight times n.
TEXT ·absmaxAVX2(SB), NOSPLIT, $0-48
	MOVQ dst+0(FP), DI
	MOVQ codes+8(FP), SI
	MOVQ n+16(FP), CX
	MOVQ values+24(FP), AX
	MOVQ groups+32(FP), DX
	MOVQ DI, R8
	MOVQ CX, R11
	VMOVUPS (DX), Y1
	VBROADCASTSS offset+40(FP), Y2
	VBROADCASTSS factor+44(FP), Y3
codes:
	LOOK_UP(0)
	LOOK_UP(1)
	LOOK_UP(2)
	LOOK_UP(3)
	LOOK_UP(4)
	LOOK_UP(5)
	LOOK_UP(6)
	LOOK_UP(7)
	ADDQ $8, SI
	ADDQ $32, DI
	DECQ CX
	JNZ codes
scales:
	VMULPS (R8), Y1, Y6
	VADDPS Y2, Y6, Y6
	VMULPS Y3, Y6, Y6
	VMOVUPS Y6, (R8)
	ADDQ $32, R8
	DECQ R11
	JNZ scales
	VZEROUPPER
	RET
