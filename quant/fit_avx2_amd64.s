#include "go_asm.h"
#include "textflag.h"

// What numbers are rounded and clamped with: a half, and the sign.
DATA halves<>+0(SB)/8, $0x3fe0000000000000
DATA halves<>+8(SB)/8, $0x8000000000000000
GLOBL halves<>(SB), RODATA|NOPTR, $16

// CODE makes codes of the numbers Y0: a half is added and the rest cut off, then they are held between Y14 and Y15.
// Of NaN it makes the least.
#define CODE \
	VADDPD Y13, Y0, Y0; VROUNDPD $11, Y0, Y0; VMAXPD Y14, Y0, Y0; VMINPD Y15, Y0, Y0

// func fitAffineVector(f *fitting)
// A lane is a scale that is tried, four at a time. The products and sums of each are those of fitAffineGo in the same order.
TEXT ·fitAffineVector(SB), NOSPLIT, $0-8
	MOVQ f+0(FP), DI
	MOVQ fitting_n(DI), R8
	MOVQ fitting_steps(DI), R9
	VBROADCASTSD halves<>+0(SB), Y13
	VBROADCASTSD fitting_least(DI), Y14
	VBROADCASTSD fitting_most(DI), Y15
	XORQ BX, BX // the first step of four
steps:
	VMOVUPS fitting_inverse(DI)(BX*4), X12
	VXORPD Y3, Y3, Y3 // wq
	VXORPD Y4, Y4, Y4 // wqq
	VXORPD Y5, Y5, Y5 // wqx
	XORQ CX, CX
sums:
	VBROADCASTSS fitting_above(DI)(CX*4), X0
	VMULPS X12, X0, X0
	VCVTPS2PD X0, Y0
	CODE
	VBROADCASTSD fitting_weight(DI)(CX*8), Y1
	VMULPD Y0, Y1, Y1
	VADDPD Y1, Y3, Y3
	VMULPD Y0, Y1, Y2
	VADDPD Y2, Y4, Y4
	VBROADCASTSD fitting_x(DI)(CX*8), Y2
	VMULPD Y2, Y1, Y1
	VADDPD Y1, Y5, Y5
	INCQ CX
	CMPQ CX, R8
	JLT sums

	VBROADCASTSD fitting_w(DI), Y6
	VBROADCASTSD fitting_wx(DI), Y7
	VMULPD Y4, Y6, Y8
	VMULPD Y3, Y3, Y9
	VSUBPD Y9, Y8, Y8 // det = w·wqq - wq·wq
	VMULPD Y5, Y6, Y9
	VMULPD Y3, Y7, Y10
	VSUBPD Y10, Y9, Y9
	VDIVPD Y8, Y9, Y9 // s = (w·wqx - wx·wq)/det
	VMULPD Y7, Y4, Y10
	VMULPD Y5, Y3, Y11
	VSUBPD Y11, Y10, Y10
	VDIVPD Y8, Y10, Y10 // m = (wqq·wx - wq·wqx)/det
	VXORPD Y0, Y0, Y0
	VCMPPD $0x1e, Y0, Y10, Y1 // where m > 0
	VDIVPD Y4, Y5, Y2
	VBLENDVPD Y1, Y2, Y9, Y9 // s = wqx/wqq
	VANDNPD Y10, Y1, Y10 // m = 0
	VCMPPD $0x1e, Y0, Y8, Y8 // det > 0
	VCMPPD $0x1e, Y0, Y9, Y1 // s > 0
	VANDPD Y1, Y8, Y8

	VXORPD Y11, Y11, Y11 // miss
	XORQ CX, CX
misses:
	VBROADCASTSD fitting_x(DI)(CX*8), Y2
	VSUBPD Y10, Y2, Y0
	VDIVPD Y9, Y0, Y0
	VCVTPD2PSY Y0, X0
	VCVTPS2PD X0, Y0
	CODE
	VMULPD Y9, Y0, Y0
	VADDPD Y10, Y0, Y0
	VSUBPD Y2, Y0, Y0 // e = s·q + m - x
	VBROADCASTSD fitting_weight(DI)(CX*8), Y1
	VMULPD Y0, Y1, Y1
	VMULPD Y0, Y1, Y1
	VADDPD Y1, Y11, Y11
	INCQ CX
	CMPQ CX, R8
	JLT misses

	VMOVUPD Y9, fitting_s(DI)(BX*8)
	VMOVUPD Y10, fitting_m(DI)(BX*8)
	VMOVUPD Y11, fitting_miss(DI)(BX*8)
	VMOVUPD Y8, fitting_valid(DI)(BX*8)
	ADDQ $4, BX
	CMPQ BX, R9
	JLT steps
	VZEROUPPER
	RET

// func fitSymmetricVector(f *fitting)
// As fitSymmetricGo: s gets the sums of weights times codes times numbers, m those with codes squared.
TEXT ·fitSymmetricVector(SB), NOSPLIT, $0-8
	MOVQ f+0(FP), DI
	MOVQ fitting_n(DI), R8
	MOVQ fitting_steps(DI), R9
	VBROADCASTSD halves<>+0(SB), Y12
	VBROADCASTSD halves<>+8(SB), Y11
	VBROADCASTSD fitting_least(DI), Y14
	VBROADCASTSD fitting_most(DI), Y15
	XORQ BX, BX
tries:
	VMOVUPS fitting_inverse(DI)(BX*4), X10
	VXORPD Y3, Y3, Y3 // xq
	VXORPD Y4, Y4, Y4 // qq
	XORQ CX, CX
numbers:
	VBROADCASTSS fitting_above(DI)(CX*4), X0
	VMULPS X10, X0, X0
	VCVTPS2PD X0, Y0
	VANDPD Y11, Y0, Y13
	VORPD Y12, Y13, Y13 // a half with the sign of the number
	CODE
	VBROADCASTSD fitting_weight(DI)(CX*8), Y1
	VMULPD Y0, Y1, Y1
	VBROADCASTSD fitting_x(DI)(CX*8), Y2
	VMULPD Y2, Y1, Y2
	VADDPD Y2, Y3, Y3
	VMULPD Y0, Y1, Y1
	VADDPD Y1, Y4, Y4
	INCQ CX
	CMPQ CX, R8
	JLT numbers
	VMOVUPD Y3, fitting_s(DI)(BX*8)
	VMOVUPD Y4, fitting_m(DI)(BX*8)
	ADDQ $4, BX
	CMPQ BX, R9
	JLT tries
	VZEROUPPER
	RET
