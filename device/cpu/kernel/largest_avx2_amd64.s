#include "textflag.h"

// func largestAVX2(top *float32, at *int32, x *float32, n int, place int32)
// n is a multiple of 8 above zero.
TEXT ·largestAVX2(SB), NOSPLIT, $0-36
	MOVQ top+0(FP), DI
	MOVQ at+8(FP), DX
	MOVQ x+16(FP), SI
	MOVQ n+24(FP), CX
	VBROADCASTSS place+32(FP), Y5
eight:
	VMOVUPS (SI), Y0
	VMOVUPS (DI), Y1
	VMOVUPS (DX), Y2
	VCMPPS $30, Y1, Y0, Y3 // x above top, false for NaN
	VBLENDVPS Y3, Y0, Y1, Y1
	VBLENDVPS Y3, Y5, Y2, Y2
	VMOVUPS Y1, (DI)
	VMOVUPS Y2, (DX)
	ADDQ $32, SI
	ADDQ $32, DI
	ADDQ $32, DX
	SUBQ $8, CX
	JNZ eight
	VZEROUPPER
	RET
