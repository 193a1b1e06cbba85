#include "textflag.h"

DATA packedNibble<>+0(SB)/4, $15
GLOBL packedNibble<>(SB), RODATA, $4
DATA packedTwo<>+0(SB)/4, $3
GLOBL packedTwo<>(SB), RODATA, $4
DATA packedMiddle<>+0(SB)/4, $32
GLOBL packedMiddle<>(SB), RODATA, $4

// The sum of eight parts.
#define SUM8(Y, X, tmp) \
	VEXTRACTF128 $1, Y, tmp; \
	VADDPS tmp, X, X; \
	VPERMILPS $0x0e, X, tmp; \
	VADDPS tmp, X, X; \
	VPERMILPS $0x01, X, tmp; \
	VADDSS tmp, X, X

// Eight bytes of a block of Q4_K at b: eight elements of one 32 in Y2, and of the next in Y3.
#define NIBBLES(b, x) \
	VPMOVZXBD b(DI), Y4; \
	VPSRLD $4, Y4, Y5; \
	VPAND Y15, Y4, Y4; \
	VCVTDQ2PS Y4, Y4; \
	VCVTDQ2PS Y5, Y5; \
	VFMADD231PS (x*4)(SI), Y4, Y2; \
	VFMADD231PS ((x+32)*4)(SI), Y5, Y3

// 64 elements of a block of Q4_K, with their two scales.
#define CHUNKQ4K(b, x, s) \
	VXORPS Y2, Y2, Y2; \
	VXORPS Y3, Y3, Y3; \
	NIBBLES(b, x); \
	NIBBLES((b+8), (x+8)); \
	NIBBLES((b+16), (x+16)); \
	NIBBLES((b+24), (x+24)); \
	VBROADCASTSS s(SP), Y6; \
	VFMADD231PS Y2, Y6, Y0; \
	VBROADCASTSS (s+4)(SP), Y7; \
	VFMADD231PS Y3, Y7, Y0

// func dotQ4KAVX2(blocks int, x, sums32 *float32, b *byte) float32
TEXT ·dotQ4KAVX2(SB), NOSPLIT, $32-36
	MOVQ blocks+0(FP), DX
	MOVQ x+8(FP), SI
	MOVQ sums32+16(FP), R8
	MOVQ b+24(FP), DI
	VPBROADCASTD packedNibble<>(SB), Y15
	VXORPS Y0, Y0, Y0
	VXORPS Y1, Y1, Y1
q4k:
	PREFETCHT0 4096(DI)
	PREFETCHT0 4160(DI)
	PREFETCHT0 4224(DI)
	MOVL 4(DI), AX
	MOVL 8(DI), BX
	MOVL 12(DI), CX
	// scales: four of AX, four of CX with high bits of AX
	MOVL AX, R9
	ANDL $0x3f3f3f3f, R9
	SHRL $6, AX
	ANDL $0x03030303, AX
	SHLL $4, AX
	MOVL CX, R10
	ANDL $0x0f0f0f0f, R10
	ORL AX, R10
	VMOVD R9, X8
	VPINSRD $1, R10, X8, X8
	// minima: four of BX, four of CX with high bits of BX
	MOVL BX, R9
	ANDL $0x3f3f3f3f, R9
	SHRL $6, BX
	ANDL $0x03030303, BX
	SHLL $4, BX
	SHRL $4, CX
	ANDL $0x0f0f0f0f, CX
	ORL BX, CX
	VMOVD R9, X9
	VPINSRD $1, CX, X9, X9
	VPMOVZXBD X8, Y8
	VPMOVZXBD X9, Y9
	VCVTDQ2PS Y8, Y8
	VCVTDQ2PS Y9, Y9
	VPBROADCASTD (DI), X10
	VCVTPH2PS X10, X10
	VPERMILPS $0x55, X10, X11
	VBROADCASTSS X10, Y10
	VBROADCASTSS X11, Y11
	VMULPS Y10, Y8, Y8
	VMULPS Y11, Y9, Y9
	VMOVUPS Y8, 0(SP)
	VFNMADD231PS (R8), Y9, Y1
	CHUNKQ4K(16, 0, 0)
	CHUNKQ4K(48, 64, 8)
	CHUNKQ4K(80, 128, 16)
	CHUNKQ4K(112, 192, 24)
	ADDQ $144, DI
	ADDQ $1024, SI
	ADDQ $32, R8
	SUBQ $1, DX
	JNZ q4k
	VADDPS Y1, Y0, Y0
	SUM8(Y0, X0, X1)
	VMOVSS X0, ret+32(FP)
	VZEROUPPER
	RET

// Eight elements of each of four 32 of a half of a block of Q6_K: low bits at b and b+32, high bits at h.
#define SIXBITS(b, h, x) \
	VPMOVZXBD h(DI), Y4; \
	VPMOVZXBD b(DI), Y5; \
	VPMOVZXBD (b+32)(DI), Y6; \
	VPAND Y14, Y4, Y7; \
	VPSLLD $4, Y7, Y7; \
	VPAND Y15, Y5, Y8; \
	VPOR Y7, Y8, Y8; \
	VPSUBD Y13, Y8, Y8; \
	VCVTDQ2PS Y8, Y8; \
	VFMADD231PS (x*4)(SI), Y8, Y1; \
	VPSRLD $2, Y4, Y7; \
	VPAND Y14, Y7, Y7; \
	VPSLLD $4, Y7, Y7; \
	VPAND Y15, Y6, Y8; \
	VPOR Y7, Y8, Y8; \
	VPSUBD Y13, Y8, Y8; \
	VCVTDQ2PS Y8, Y8; \
	VFMADD231PS ((x+32)*4)(SI), Y8, Y2; \
	VPSRLD $4, Y4, Y7; \
	VPAND Y14, Y7, Y7; \
	VPSLLD $4, Y7, Y7; \
	VPSRLD $4, Y5, Y8; \
	VPOR Y7, Y8, Y8; \
	VPSUBD Y13, Y8, Y8; \
	VCVTDQ2PS Y8, Y8; \
	VFMADD231PS ((x+64)*4)(SI), Y8, Y3; \
	VPSRLD $6, Y4, Y7; \
	VPSLLD $4, Y7, Y7; \
	VPSRLD $4, Y6, Y8; \
	VPOR Y7, Y8, Y8; \
	VPSUBD Y13, Y8, Y8; \
	VCVTDQ2PS Y8, Y8; \
	VFMADD231PS ((x+96)*4)(SI), Y8, Y9

// Sixteen of each, with their scales, 8 bytes apart.
#define CHUNKQ6K(b, h, x, s) \
	VXORPS Y1, Y1, Y1; \
	VXORPS Y2, Y2, Y2; \
	VXORPS Y3, Y3, Y3; \
	VXORPS Y9, Y9, Y9; \
	SIXBITS(b, h, x); \
	SIXBITS((b+8), (h+8), (x+8)); \
	VBROADCASTSS s(SP), Y10; \
	VFMADD231PS Y1, Y10, Y0; \
	VBROADCASTSS (s+8)(SP), Y10; \
	VFMADD231PS Y2, Y10, Y0; \
	VBROADCASTSS (s+16)(SP), Y10; \
	VFMADD231PS Y3, Y10, Y0; \
	VBROADCASTSS (s+24)(SP), Y10; \
	VFMADD231PS Y9, Y10, Y0

// func dotQ6KAVX2(blocks int, x *float32, b *byte) float32
TEXT ·dotQ6KAVX2(SB), NOSPLIT, $64-28
	MOVQ blocks+0(FP), DX
	MOVQ x+8(FP), SI
	MOVQ b+16(FP), DI
	VPBROADCASTD packedNibble<>(SB), Y15
	VPBROADCASTD packedTwo<>(SB), Y14
	VPBROADCASTD packedMiddle<>(SB), Y13
	VXORPS Y0, Y0, Y0
q6k:
	PREFETCHT0 4096(DI)
	PREFETCHT0 4160(DI)
	PREFETCHT0 4224(DI)
	PREFETCHT0 4288(DI)
	MOVWLZX 208(DI), AX
	VMOVD AX, X10
	VCVTPH2PS X10, X10
	VBROADCASTSS X10, Y10
	VPMOVSXBD 192(DI), Y11
	VPMOVSXBD 200(DI), Y12
	VCVTDQ2PS Y11, Y11
	VCVTDQ2PS Y12, Y12
	VMULPS Y10, Y11, Y11
	VMULPS Y10, Y12, Y12
	VMOVUPS Y11, 0(SP)
	VMOVUPS Y12, 32(SP)
	CHUNKQ6K(0, 128, 0, 0)
	CHUNKQ6K(16, 144, 16, 4)
	CHUNKQ6K(64, 160, 128, 32)
	CHUNKQ6K(80, 176, 144, 36)
	ADDQ $210, DI
	ADDQ $1024, SI
	SUBQ $1, DX
	JNZ q6k
	SUM8(Y0, X0, X1)
	VMOVSS X0, ret+24(FP)
	VZEROUPPER
	RET

// Values of eight codes in Y, of sixteen in Y14 and Y15.
#define LOOKUP(Y) \
	VPERMPS Y14, Y, Y6; \
	VPERMPS Y15, Y, Y7; \
	VPSLLD $28, Y, Y; \
	VBLENDVPS Y, Y7, Y6, Y

// Sixteen elements: those with even numbers are in the upper halves of bytes, and first in x.
#define PAIRS(b, x) \
	VPMOVZXBD b(DI), Y4; \
	VPSRLD $4, Y4, Y5; \
	VPAND Y13, Y4, Y4; \
	LOOKUP(Y5); \
	VFMADD231PS (x*4)(SI), Y5, Y1; \
	LOOKUP(Y4); \
	VFMADD231PS ((x+8)*4)(SI), Y4, Y2

// func dotFourBitAVX2(blocks int, x *float32, codes *byte, scales, values *float32) float32
TEXT ·dotFourBitAVX2(SB), NOSPLIT, $0-44
	MOVQ blocks+0(FP), DX
	MOVQ x+8(FP), SI
	MOVQ codes+16(FP), DI
	MOVQ scales+24(FP), R8
	MOVQ values+32(FP), AX
	VMOVUPS (AX), Y14
	VMOVUPS 32(AX), Y15
	VPBROADCASTD packedNibble<>(SB), Y13
	VXORPS Y0, Y0, Y0
nf4:
	PREFETCHT0 4096(DI)
	VXORPS Y1, Y1, Y1
	VXORPS Y2, Y2, Y2
	PAIRS(0, 0)
	PAIRS(8, 16)
	PAIRS(16, 32)
	PAIRS(24, 48)
	VADDPS Y2, Y1, Y1
	VBROADCASTSS (R8), Y3
	VFMADD231PS Y1, Y3, Y0
	ADDQ $32, DI
	ADDQ $256, SI
	ADDQ $4, R8
	SUBQ $1, DX
	JNZ nf4
	SUM8(Y0, X0, X1)
	VMOVSS X0, ret+40(FP)
	VZEROUPPER
	RET

#define INTEGERS(o, sum) \
	VPMOVSXBD o(DI), Y4; \
	VCVTDQ2PS Y4, Y4; \
	VFMADD231PS (o*4)(SI), Y4, sum

// func dotI8AVX2(k int, x *float32, codes *byte) float32
TEXT ·dotI8AVX2(SB), NOSPLIT, $0-28
	MOVQ k+0(FP), DX
	MOVQ x+8(FP), SI
	MOVQ codes+16(FP), DI
	VXORPS Y0, Y0, Y0
	VXORPS Y1, Y1, Y1
i8:
	PREFETCHT0 4096(DI)
	INTEGERS(0, Y0)
	INTEGERS(8, Y1)
	INTEGERS(16, Y0)
	INTEGERS(24, Y1)
	INTEGERS(32, Y0)
	INTEGERS(40, Y1)
	INTEGERS(48, Y0)
	INTEGERS(56, Y1)
	ADDQ $64, DI
	ADDQ $256, SI
	SUBQ $64, DX
	JNZ i8
	VADDPS Y1, Y0, Y0
	SUM8(Y0, X0, X1)
	VMOVSS X0, ret+24(FP)
	VZEROUPPER
	RET
