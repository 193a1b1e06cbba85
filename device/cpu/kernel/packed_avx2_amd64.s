#include "textflag.h"
#include "packed.h"

// func unpackQ4_0AVX2(w *byte, pairs *int16, scales, minima *float32, blocks int)
TEXT ·unpackQ4_0AVX2(SB), NOSPLIT, $0-40
	VPBROADCASTQ fours<>(SB), Y15
	UNPACK_BEGIN
	ELEMENTS4(32, PUT0)
	ELEMENTS4(64, PUT1)
	VCVTPH2PS (SI), Y2
	VCVTPH2PS 16(SI), Y3
	VMOVUPS Y2, (R12)
	VMOVUPS Y3, 32(R12)
	ADDQ $288, SI
	ADDQ $1024, DI
	ADDQ $64, R12
	UNPACK_END

// func unpackQ8_0AVX2(w *byte, pairs *int16, scales, minima *float32, blocks int)
TEXT ·unpackQ8_0AVX2(SB), NOSPLIT, $0-40
	UNPACK_BEGIN
	ELEMENTS8(32, PUT0)
	ELEMENTS8(64, PUT1)
	VCVTPH2PS (SI), Y2
	VCVTPH2PS 16(SI), Y3
	VMOVUPS Y2, (R12)
	VMOVUPS Y3, 32(R12)
	ADDQ $544, SI
	ADDQ $1024, DI
	ADDQ $64, R12
	UNPACK_END

// func unpackQ4KAVX2(w *byte, pairs *int16, scales, minima *float32, blocks int)
TEXT ·unpackQ4KAVX2(SB), NOSPLIT, $0-40
	MASKS_4K
	UNPACK_BEGIN
	VCVTPH2PS (SI), Y2
	VCVTPH2PS 16(SI), Y10
	VCVTPH2PS 128(SI), Y0
	VCVTPH2PS 144(SI), Y1
	LEAQ 32(SI), R8
	LEAQ 96(SI), R9
	ADDQ $256, SI
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
	VPBROADCASTQ halves<>(SB), Y15
	VPBROADCASTQ tops<>(SB), Y14
	UNPACK_BEGIN
	VCVTPH2PS (SI), Y2
	VCVTPH2PS 144(SI), Y10
	LEAQ 16(SI), R8
	ADDQ $288, SI
	MOVQ $16, R11
sixteen:
	ELEMENTS6(0, PUT0)
	ELEMENTS6(32, PUT1)
	VPMOVSXBD (R8), Y11
	VPMOVSXBD 144(R8), Y12
	VCVTDQ2PS Y11, Y11
	VCVTDQ2PS Y12, Y12
	VMULPS Y2, Y11, Y11
	VMULPS Y10, Y12, Y12
	VMOVUPS Y11, (R12)
	VMOVUPS Y12, 32(R12)
	ADDQ $192, SI
	ADDQ $512, DI
	ADDQ $8, R8
	ADDQ $64, R12
	DECQ R11
	JNZ sixteen
	UNPACK_END

// Upper bytes of elements 0 4 1 5 2 6 3 7, then their lower bytes. Upper bytes are rounded, so that lower ones are signed.
DATA split<>+0(SB)/8, $0x0f070d050b030901
DATA split<>+8(SB)/8, $0x0e060c040a020800
GLOBL split<>(SB), RODATA|NOPTR, $16
DATA lowest<>+0(SB)/4, $0x00800080
GLOBL lowest<>(SB), RODATA|NOPTR, $4

// func splitInputsAVX2(x *int16, n int)
// n is a multiple of 16.
TEXT ·splitInputsAVX2(SB), NOSPLIT, $0-16
	MOVQ x+0(FP), SI
	MOVQ n+8(FP), CX
	VBROADCASTI128 split<>(SB), Y1
	VPBROADCASTD lowest<>(SB), Y2
sixteen:
	VPADDW (SI), Y2, Y0
	VPXOR Y2, Y0, Y0
	VPSHUFB Y1, Y0, Y0
	VMOVDQU Y0, (SI)
	ADDQ $32, SI
	SUBQ $16, CX
	JNZ sixteen
	VZEROUPPER
	RET
