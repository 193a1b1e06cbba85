#include "textflag.h"

DATA ones<>+0(SB)/4, $1.0
GLOBL ones<>(SB), RODATA|NOPTR, $4

// func saturateAVX512(rounds int, sums *float32)
// 24 chains of 16 lanes, as many as a tile has: sums[i] = rounds.
#define FMA4(a, b, c, d) VFMADD231PS Z30, Z31, a; VFMADD231PS Z30, Z31, b; VFMADD231PS Z30, Z31, c; VFMADD231PS Z30, Z31, d
#define ZERO4(a, b, c, d) VPXORD a, a, a; VPXORD b, b, b; VPXORD c, c, c; VPXORD d, d, d
#define OUT4(a, b, c, d) VMOVUPS a, (DI); VMOVUPS b, 64(DI); VMOVUPS c, 128(DI); VMOVUPS d, 192(DI); ADDQ $256, DI
#define ALL(DO) \
	DO(Z0, Z1, Z2, Z3); DO(Z4, Z5, Z6, Z7); DO(Z8, Z9, Z10, Z11); \
	DO(Z12, Z13, Z14, Z15); DO(Z16, Z17, Z18, Z19); DO(Z20, Z21, Z22, Z23)

TEXT ·saturateAVX512(SB), NOSPLIT, $0-16
	MOVQ rounds+0(FP), CX
	MOVQ sums+8(FP), DI
	VBROADCASTSS ones<>(SB), Z30
	VBROADCASTSS ones<>(SB), Z31
	ALL(ZERO4)
	TESTQ CX, CX
	JZ done
round:
	ALL(FMA4)
	DECQ CX
	JNZ round
done:
	ALL(OUT4)
	VZEROUPPER
	RET

// func saturateAVX2(rounds int, sums *float32)
// 12 chains of 8 lanes.
#define FMA4Y(a, b, c, d) VFMADD231PS Y14, Y15, a; VFMADD231PS Y14, Y15, b; VFMADD231PS Y14, Y15, c; VFMADD231PS Y14, Y15, d
#define ZERO4Y(a, b, c, d) VXORPS a, a, a; VXORPS b, b, b; VXORPS c, c, c; VXORPS d, d, d
#define OUT4Y(a, b, c, d) VMOVUPS a, (DI); VMOVUPS b, 32(DI); VMOVUPS c, 64(DI); VMOVUPS d, 96(DI); ADDQ $128, DI
#define ALLY(DO) DO(Y0, Y1, Y2, Y3); DO(Y4, Y5, Y6, Y7); DO(Y8, Y9, Y10, Y11)

TEXT ·saturateAVX2(SB), NOSPLIT, $0-16
	MOVQ rounds+0(FP), CX
	MOVQ sums+8(FP), DI
	VBROADCASTSS ones<>(SB), Y14
	VBROADCASTSS ones<>(SB), Y15
	ALLY(ZERO4Y)
	TESTQ CX, CX
	JZ done
round:
	ALLY(FMA4Y)
	DECQ CX
	JNZ round
done:
	ALLY(OUT4Y)
	VZEROUPPER
	RET
