#include "textflag.h"
#include "packed.h"

#define DOT(w, t, p) VPBROADCASTD (4*p)(DX), t; VPMADDWD w, t, t; VPADDD t, Y1, Y1

// func matvecQ4_0AVX2(w *byte, x *int16, records *record, dst *float32, blocks, groups int)
TEXT ·matvecQ4_0AVX2(SB), NOSPLIT, $0-48
	MATVEC4_0

// func matvecQ8_0AVX2(w *byte, x *int16, records *record, dst *float32, blocks, groups int)
TEXT ·matvecQ8_0AVX2(SB), NOSPLIT, $0-48
	MATVEC8_0

// func matvecQ4KAVX2(w *byte, x *int16, records *record, dst *float32, blocks, groups int)
TEXT ·matvecQ4KAVX2(SB), NOSPLIT, $128-48
	MATVEC4_K

// func matvecQ6KAVX2(w *byte, x *int16, records *record, dst *float32, blocks, groups int)
TEXT ·matvecQ6KAVX2(SB), NOSPLIT, $0-48
	MATVEC6_K

// func unpackQ4_0AVX2(w *byte, pairs *int16, scales, minima *float32, blocks int)
TEXT ·unpackQ4_0AVX2(SB), NOSPLIT, $0-40
	VPBROADCASTQ fours<>(SB), Y15
	UNPACK_BEGIN
	ELEMENTS4(16, PUT)
	VCVTPH2PS (SI), Y2
	VMOVUPS Y2, (R12)
	ADDQ $144, SI
	ADDQ $1024, DI
	ADDQ $64, R12
	UNPACK_END

// func unpackQ8_0AVX2(w *byte, pairs *int16, scales, minima *float32, blocks int)
TEXT ·unpackQ8_0AVX2(SB), NOSPLIT, $0-40
	UNPACK_BEGIN
	ELEMENTS8(16, PUT)
	VCVTPH2PS (SI), Y2
	VMOVUPS Y2, (R12)
	ADDQ $272, SI
	ADDQ $1024, DI
	ADDQ $64, R12
	UNPACK_END

// func unpackQ4KAVX2(w *byte, pairs *int16, scales, minima *float32, blocks int)
TEXT ·unpackQ4KAVX2(SB), NOSPLIT, $0-40
	MASKS_4K
	UNPACK_BEGIN
	VCVTPH2PS (SI), Y2
	VCVTPH2PS 16(SI), Y10
	LEAQ 32(SI), R8
	LEAQ 96(SI), R9
	ADDQ $128, SI
	MOVQ $4, R11
pair:
	UNPACK4K(SCALE4K_EVEN)
	UNPACK4K(SCALE4K_ODD)
	ADDQ $16, R8
	ADDQ $8, R9
	DECQ R11
	JNZ pair
	UNPACK_END

// func unpackQ6KAVX2(w *byte, pairs *int16, scales, minima *float32, blocks int)
TEXT ·unpackQ6KAVX2(SB), NOSPLIT, $0-40
	VPBROADCASTQ fours<>(SB), Y15
	VPBROADCASTQ twos<>(SB), Y14
	UNPACK_BEGIN
	VCVTPH2PS (SI), Y2
	LEAQ 16(SI), R8
	ADDQ $144, SI
	MOVQ $16, R11
sixteen:
	ELEMENTS6(PUT)
	VPMOVSXBD (R8), Y11
	VCVTDQ2PS Y11, Y11
	VMULPS Y2, Y11, Y11
	VMOVUPS Y11, (R12)
	ADDQ $96, SI
	ADDQ $512, DI
	ADDQ $8, R8
	ADDQ $64, R12
	DECQ R11
	JNZ sixteen
	UNPACK_END

// Upper bytes of elements 0 4 1 5 2 6 3 7, then their lower bytes.
DATA split<>+0(SB)/8, $0x0f070d050b030901
DATA split<>+8(SB)/8, $0x0e060c040a020800
GLOBL split<>(SB), RODATA|NOPTR, $16

// func splitInputsAVX2(x *int16, n int)
// n is a multiple of 16.
TEXT ·splitInputsAVX2(SB), NOSPLIT, $0-16
	MOVQ x+0(FP), SI
	MOVQ n+8(FP), CX
	VBROADCASTI128 split<>(SB), Y1
sixteen:
	VMOVDQU (SI), Y0
	VPSHUFB Y1, Y0, Y0
	VMOVDQU Y0, (SI)
	ADDQ $32, SI
	SUBQ $16, CX
	JNZ sixteen
	VZEROUPPER
	RET
