#include "textflag.h"

// Codes that stand for integers of a table, as in table_avx2_amd64.s: the table, twice, is 32 words in Z14, and words are
// looked up by their lower five bits, so that codes need not be cut out. Lookups and shifts are what takes the time.

// The code at a shift of words in Z4 and a pair of inputs at x of DX are added to sums. There are two of them, since an
// instruction that multiplies and adds waits for the sum it adds to.
#define PAIR(shift, x, sums) VPSRLW $shift, Z4, Z5; VPERMW Z14, Z5, Z5; VPDPWSSD.BCST (x)(DX), Z5, sums
#define EIGHT(o, x) \
	PREFETCHT0 (4096+o)(SI); \
	VMOVDQU64 (o)(SI), Z4; \
	VPERMW Z14, Z4, Z5; VPDPWSSD.BCST (x)(DX), Z5, Z2; \
	PAIR(4, x+8, Z3); PAIR(8, x+4, Z2); PAIR(12, x+12, Z3)
#define HALF(o) \
	VPXORD X2, X2, X2; VPXORD X3, X3, X3; \
	EIGHT(o, 0); EIGHT(o+64, 16); EIGHT(o+128, 32); EIGHT(o+192, 48); \
	VPADDD Z3, Z2, Z2; \
	VCVTDQ2PS Z2, Z2; VMULPS.BCST (BX), Z1, Z3; VFMADD231PS Z3, Z2, Z0; \
	ADDQ $64, DX; ADDQ $16, BX

#define LOOK_UP(i) MOVBLZX i(R9), R12; MOVL (R11)(R12*4), R13; MOVL R13, (4*i)(R10)

// func matvecTableVNNI(w *byte, x *int16, records *record, dst *float32, table *[32]byte, blocks int, scales scaling, next lookup)
TEXT ·matvecTableVNNI(SB), NOSPLIT, $0-96
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
	VPMOVZXBW (AX), Y14
	VPMOVZXBW 16(AX), Y15
	VPSLLW $8, Y15, Y15
	VPOR Y15, Y14, Y14
	VINSERTI64X4 $1, Y14, Z14, Z14
	MOVQ scales_groups+56(FP), AX
	VMOVUPS (AX), Z13
	VBROADCASTSS scales_offset+64(FP), Z12
	VBROADCASTSS scales_factor+68(FP), Z11
	VMOVUPS (DI), Z0
block:
	PREFETCHT0 1024(R9)
	VMULPS (R8), Z13, Z1
	VADDPS Z12, Z1, Z1
	VMULPS Z11, Z1, Z1
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
	VMOVUPS Z0, (DI)
	VZEROUPPER
	RET
