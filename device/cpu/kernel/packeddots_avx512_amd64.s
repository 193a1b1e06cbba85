#include "textflag.h"

DATA wideCodes<>+0(SB)/4, $0.0
DATA wideCodes<>+4(SB)/4, $1.0
DATA wideCodes<>+8(SB)/4, $2.0
DATA wideCodes<>+12(SB)/4, $3.0
DATA wideCodes<>+16(SB)/4, $4.0
DATA wideCodes<>+20(SB)/4, $5.0
DATA wideCodes<>+24(SB)/4, $6.0
DATA wideCodes<>+28(SB)/4, $7.0
DATA wideCodes<>+32(SB)/4, $8.0
DATA wideCodes<>+36(SB)/4, $9.0
DATA wideCodes<>+40(SB)/4, $10.0
DATA wideCodes<>+44(SB)/4, $11.0
DATA wideCodes<>+48(SB)/4, $12.0
DATA wideCodes<>+52(SB)/4, $13.0
DATA wideCodes<>+56(SB)/4, $14.0
DATA wideCodes<>+60(SB)/4, $15.0
GLOBL wideCodes<>(SB), RODATA, $64
DATA wideNibble<>+0(SB)/4, $0x0f0f0f0f
GLOBL wideNibble<>(SB), RODATA, $4
DATA wideHigh<>+0(SB)/4, $0x30303030
GLOBL wideHigh<>(SB), RODATA, $4
DATA wideMiddle<>+0(SB)/4, $0x20202020
GLOBL wideMiddle<>(SB), RODATA, $4

// The sum of sixteen parts in Z0 and eight more in Y1.
#define SUM16 \
	VEXTRACTF64X4 $1, Z0, Y2; \
	VADDPS Y2, Y0, Y0; \
	VADDPS Y1, Y0, Y0; \
	VEXTRACTF128 $1, Y0, X2; \
	VADDPS X2, X0, X0; \
	VPERMILPS $0x0e, X0, X2; \
	VADDPS X2, X0, X0; \
	VPERMILPS $0x01, X0, X2; \
	VADDSS X2, X0, X0

// 64 elements of a block of Q4_K, with their two scales: a table in Z15 makes numbers of the low four bits of
// each lane.
#define WIDEQ4K(b, x, s) \
	VPMOVZXBD b(DI), Z4; \
	VPMOVZXBD (b+16)(DI), Z5; \
	VPERMPS Z15, Z4, Z6; \
	VPERMPS Z15, Z5, Z7; \
	VPSRLD $4, Z4, Z4; \
	VPSRLD $4, Z5, Z5; \
	VMULPS (x*4)(SI), Z6, Z2; \
	VPERMPS Z15, Z4, Z4; \
	VPERMPS Z15, Z5, Z5; \
	VFMADD231PS ((x+16)*4)(SI), Z7, Z2; \
	VMULPS ((x+32)*4)(SI), Z4, Z3; \
	VFMADD231PS ((x+48)*4)(SI), Z5, Z3; \
	VFMADD231PS.BCST s(SP), Z2, Z0; \
	VFMADD231PS.BCST (s+4)(SP), Z3, Z14

// func dotQ4KAVX512(blocks int, x, sums32 *float32, b *byte) float32
TEXT ·dotQ4KAVX512(SB), NOSPLIT, $32-36
	MOVQ blocks+0(FP), DX
	MOVQ x+8(FP), SI
	MOVQ sums32+16(FP), R8
	MOVQ b+24(FP), DI
	VMOVUPS wideCodes<>(SB), Z15
	VXORPS Y0, Y0, Y0
	VXORPS Y1, Y1, Y1
	VXORPS Y14, Y14, Y14
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
	SHLQ $32, R10
	ORQ R10, R9
	VMOVQ R9, X8
	// minima: four of BX, four of CX with high bits of BX
	MOVL BX, R9
	ANDL $0x3f3f3f3f, R9
	SHRL $6, BX
	ANDL $0x03030303, BX
	SHLL $4, BX
	SHRL $4, CX
	ANDL $0x0f0f0f0f, CX
	ORL BX, CX
	SHLQ $32, CX
	ORQ CX, R9
	VMOVQ R9, X9
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
	WIDEQ4K(16, 0, 0)
	WIDEQ4K(48, 64, 8)
	WIDEQ4K(80, 128, 16)
	WIDEQ4K(112, 192, 24)
	ADDQ $144, DI
	ADDQ $1024, SI
	ADDQ $32, R8
	SUBQ $1, DX
	JNZ q4k
	VADDPS Z14, Z0, Z0
	SUM16
	VMOVSS X0, ret+32(FP)
	VZEROUPPER
	RET

// 32 elements of Q6_K in the bytes of Y, sixteen with a scale, and sixteen with the next.
#define WIDESIX(Y, X, x, s, a, b) \
	VPSUBB Y12, Y, Y; \
	VEXTRACTI128 $1, Y, X8; \
	VPMOVSXBD X, Z9; \
	VPMOVSXBD X8, Z10; \
	VCVTDQ2PS Z9, Z9; \
	VCVTDQ2PS Z10, Z10; \
	VMULPS (x*4)(SI), Z9, Z9; \
	VMULPS ((x+16)*4)(SI), Z10, Z10; \
	VFMADD231PS.BCST s(SP), Z9, a; \
	VFMADD231PS.BCST (s+4)(SP), Z10, b

// Half of a block of Q6_K: low bits at b and b+32, high bits at h. The bits of Y13 come from one register, the
// others from the other.
#define WIDEQ6K(b, h, x, s) \
	VMOVDQU h(DI), Y2; \
	VMOVDQU b(DI), Y3; \
	VMOVDQU (b+32)(DI), Y4; \
	VPSLLW $4, Y2, Y5; \
	VPAND Y11, Y3, Y6; \
	VPTERNLOGD $0xea, Y6, Y13, Y5; \
	WIDESIX(Y5, X5, x, s, Z0, Z14); \
	VPSLLW $2, Y2, Y5; \
	VPAND Y11, Y4, Y6; \
	VPTERNLOGD $0xea, Y6, Y13, Y5; \
	WIDESIX(Y5, X5, (x+32), (s+8), Z15, Z16); \
	VPSRLW $4, Y3, Y3; \
	VPAND Y11, Y3, Y3; \
	VPAND Y13, Y2, Y5; \
	VPOR Y3, Y5, Y5; \
	WIDESIX(Y5, X5, (x+64), (s+16), Z0, Z14); \
	VPSRLW $2, Y2, Y5; \
	VPSRLW $4, Y4, Y4; \
	VPAND Y11, Y4, Y4; \
	VPTERNLOGD $0xea, Y4, Y13, Y5; \
	WIDESIX(Y5, X5, (x+96), (s+24), Z15, Z16)

// func dotQ6KAVX512(blocks int, x *float32, b *byte) float32
TEXT ·dotQ6KAVX512(SB), NOSPLIT, $64-28
	MOVQ blocks+0(FP), DX
	MOVQ x+8(FP), SI
	MOVQ b+16(FP), DI
	VPBROADCASTD wideNibble<>(SB), Y11
	VPBROADCASTD wideHigh<>(SB), Y13
	VPBROADCASTD wideMiddle<>(SB), Y12
	VXORPS Y0, Y0, Y0
	VXORPS Y1, Y1, Y1
	VXORPS Y14, Y14, Y14
	VXORPS Y15, Y15, Y15
	VPXORD Z16, Z16, Z16
q6k:
	PREFETCHT0 4096(DI)
	PREFETCHT0 4160(DI)
	PREFETCHT0 4224(DI)
	PREFETCHT0 4288(DI)
	MOVWLZX 208(DI), AX
	VMOVD AX, X9
	VCVTPH2PS X9, X9
	VBROADCASTSS X9, Z9
	VPMOVSXBD 192(DI), Z10
	VCVTDQ2PS Z10, Z10
	VMULPS Z9, Z10, Z10
	VMOVUPS Z10, 0(SP)
	WIDEQ6K(0, 128, 0, 0)
	WIDEQ6K(64, 160, 128, 32)
	ADDQ $210, DI
	ADDQ $1024, SI
	SUBQ $1, DX
	JNZ q6k
	VADDPS Z14, Z0, Z0
	VADDPS Z16, Z15, Z15
	VADDPS Z15, Z0, Z0
	SUM16
	VMOVSS X0, ret+24(FP)
	VZEROUPPER
	RET
