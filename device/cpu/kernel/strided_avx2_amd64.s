#include "textflag.h"

// Transforms of strided convolutions for AVX2, see strided.go, of eight channels at a time.

// Result k, at table[k] elements behind DI. R11 is the table.
#define TO(k, y) MOVQ (8*k)(R11), AX; VMOVUPS y, (DI)(AX*4)

// Five places of a line from a on, R9 apart, in Y0 to Y4; R10 is 3·R9. Less those from b on.
#define LINE5(a) VMOVUPS (a), Y0; VMOVUPS (a)(R9*1), Y1; VMOVUPS (a)(R9*2), Y2; VMOVUPS (a)(R10*1), Y3; VMOVUPS (a)(R9*4), Y4
#define LESS5(b) VSUBPS (b), Y0, Y0; VSUBPS (b)(R9*1), Y1, Y1; VSUBPS (b)(R9*2), Y2, Y2; VSUBPS (b)(R10*1), Y3, Y3; VSUBPS (b)(R9*4), Y4, Y4
#define IN5(k) \
	VSUBPS Y2, Y0, Y0; VSUBPS Y2, Y4, Y4; \
	TO((k+0), Y0); TO((k+1), Y1); TO((k+2), Y2); TO((k+3), Y4); TO((k+4), Y3)

// func stridedInAVX2(dst *float32, table *[StridedTerms]int, src *float32, row, col, n int)
TEXT ·stridedInAVX2(SB), NOSPLIT, $0-48
	MOVQ dst+0(FP), DI
	MOVQ table+8(FP), R11
	MOVQ src+16(FP), SI
	MOVQ row+24(FP), R8
	SHLQ $2, R8
	MOVQ col+32(FP), R9
	SHLQ $2, R9
	LEAQ (R9)(R9*2), R10
	MOVQ n+40(FP), CX
	LEAQ (SI)(R8*1), BX
	LEAQ (SI)(R8*2), DX
	LEAQ (BX)(R8*2), R12
	LEAQ (DX)(R8*2), R13
eight:
	LINE5(SI)
	LESS5(DX)
	IN5(0)
	LINE5(BX)
	IN5(5)
	LINE5(DX)
	IN5(10)
	LINE5(R13)
	LESS5(DX)
	IN5(15)
	LINE5(R12)
	IN5(20)
	ADDQ $32, SI
	ADDQ $32, BX
	ADDQ $32, DX
	ADDQ $32, R12
	ADDQ $32, R13
	ADDQ $32, DI
	SUBQ $8, CX
	JNZ eight
	VZEROUPPER
	RET

// func stridedOutAVX2(dst *float32, row, col int, src *float32, xi int, add *float32, n int)
// Three sums of a line, left and right.
#define PAIR(l, r) VMOVUPS (DX), l; VMOVUPS (DX)(R10*1), r; VADDPS r, l, l; VADDPS (DX)(R10*2), r, r; ADDQ R11, DX
TEXT ·stridedOutAVX2(SB), NOSPLIT, $0-56
	MOVQ dst+0(FP), DI
	MOVQ row+8(FP), R8
	SHLQ $2, R8
	MOVQ col+16(FP), R9
	SHLQ $2, R9
	LEAQ (R8)(R9*1), R12
	MOVQ src+24(FP), SI
	MOVQ xi+32(FP), R10
	SHLQ $2, R10
	LEAQ (R10)(R10*2), R11
	MOVQ add+40(FP), BX
	MOVQ n+48(FP), CX
	VXORPS Y9, Y9, Y9
eight:
	MOVQ SI, DX
	PAIR(Y0, Y1)
	PAIR(Y2, Y3)
	PAIR(Y4, Y5)
	VADDPS Y2, Y0, Y0
	VADDPS Y3, Y1, Y1
	VADDPS Y4, Y2, Y2
	VADDPS Y5, Y3, Y3
	TESTQ BX, BX
	JZ store
	VMOVUPS (BX), Y9
	ADDQ $32, BX
	VADDPS Y9, Y0, Y0
	VADDPS Y9, Y1, Y1
	VADDPS Y9, Y2, Y2
	VADDPS Y9, Y3, Y3
store:
	VMOVUPS Y0, (DI)
	VMOVUPS Y1, (DI)(R9*1)
	VMOVUPS Y2, (DI)(R8*1)
	VMOVUPS Y3, (DI)(R12*1)
	ADDQ $32, SI
	ADDQ $32, DI
	SUBQ $8, CX
	JNZ eight
	VZEROUPPER
	RET

// func stridedGradAVX2(dst *float32, xi int, src *float32, row, col, n int)
#define SPREAD3(l, r) VADDPS r, l, Y8; VMOVUPS l, (DX); VMOVUPS Y8, (DX)(R10*1); VMOVUPS r, (DX)(R10*2); ADDQ R11, DX
TEXT ·stridedGradAVX2(SB), NOSPLIT, $0-48
	MOVQ dst+0(FP), DI
	MOVQ xi+8(FP), R10
	SHLQ $2, R10
	LEAQ (R10)(R10*2), R11
	MOVQ src+16(FP), SI
	MOVQ row+24(FP), R8
	SHLQ $2, R8
	MOVQ col+32(FP), R9
	SHLQ $2, R9
	LEAQ (R8)(R9*1), R12
	MOVQ n+40(FP), CX
eight:
	MOVQ DI, DX
	VMOVUPS (SI), Y0
	VMOVUPS (SI)(R9*1), Y1
	VMOVUPS (SI)(R8*1), Y2
	VMOVUPS (SI)(R12*1), Y3
	VADDPS Y2, Y0, Y4
	VADDPS Y3, Y1, Y5
	SPREAD3(Y0, Y1)
	SPREAD3(Y4, Y5)
	SPREAD3(Y2, Y3)
	ADDQ $32, SI
	ADDQ $32, DI
	SUBQ $8, CX
	JNZ eight
	VZEROUPPER
	RET

// func stridedBackInAVX2(dst *float32, xi int, src *float32, row, col, n int)
#define LINE3(a) VMOVUPS (a), Y0; VMOVUPS (a)(R9*1), Y1; VMOVUPS (a)(R9*2), Y2
#define LESS3(b) VSUBPS (b), Y0, Y0; VSUBPS (b)(R9*1), Y1, Y1; VSUBPS (b)(R9*2), Y2, Y2
#define IN3 \
	VSUBPS Y1, Y0, Y0; VSUBPS Y1, Y2, Y3; \
	VMOVUPS Y0, (DX); VMOVUPS Y1, (DX)(R10*1); VMOVUPS Y3, (DX)(R10*2); VMOVUPS Y2, (DX)(R11*1); LEAQ (DX)(R10*4), DX
TEXT ·stridedBackInAVX2(SB), NOSPLIT, $0-48
	MOVQ dst+0(FP), DI
	MOVQ xi+8(FP), R10
	SHLQ $2, R10
	LEAQ (R10)(R10*2), R11
	MOVQ src+16(FP), SI
	MOVQ row+24(FP), R8
	SHLQ $2, R8
	MOVQ col+32(FP), R9
	SHLQ $2, R9
	LEAQ (SI)(R8*1), BX
	LEAQ (BX)(R8*1), R12
	MOVQ n+40(FP), CX
eight:
	MOVQ DI, DX
	LINE3(SI)
	LESS3(BX)
	IN3
	LINE3(BX)
	IN3
	LINE3(R12)
	LESS3(BX)
	IN3
	LINE3(R12)
	IN3
	ADDQ $32, SI
	ADDQ $32, BX
	ADDQ $32, R12
	ADDQ $32, DI
	SUBQ $8, CX
	JNZ eight
	VZEROUPPER
	RET

// func stridedBackOutAVX2(dst *float32, row, col int, src *float32, table *[StridedTerms]int, n int)
#define FROM(k, y) MOVQ (8*k)(R11), AX; VMOVUPS (SI)(AX*4), y
#define PLUS(k, y) MOVQ (8*k)(R11), AX; VADDPS (SI)(AX*4), y, y
#define FROM5(k) FROM((k+0), Y0); FROM((k+1), Y1); FROM((k+2), Y2); FROM((k+3), Y3); FROM((k+4), Y4)
#define PLUS5(k) PLUS((k+0), Y0); PLUS((k+1), Y1); PLUS((k+2), Y2); PLUS((k+3), Y3); PLUS((k+4), Y4)
#define OUT4 \
	VADDPS Y1, Y0, Y0; VADDPS Y1, Y3, Y3; \
	VMOVUPS Y0, (DX); VMOVUPS Y2, (DX)(R9*1); VMOVUPS Y3, (DX)(R9*2); VMOVUPS Y4, (DX)(R10*1); ADDQ R8, DX
TEXT ·stridedBackOutAVX2(SB), NOSPLIT, $0-48
	MOVQ dst+0(FP), DI
	MOVQ row+8(FP), R8
	SHLQ $2, R8
	MOVQ col+16(FP), R9
	SHLQ $2, R9
	LEAQ (R9)(R9*2), R10
	MOVQ src+24(FP), SI
	MOVQ table+32(FP), R11
	MOVQ n+40(FP), CX
eight:
	MOVQ DI, DX
	FROM5(0)
	PLUS5(5)
	OUT4
	FROM5(10)
	OUT4
	FROM5(5)
	PLUS5(15)
	OUT4
	FROM5(20)
	OUT4
	ADDQ $32, SI
	ADDQ $32, DI
	SUBQ $8, CX
	JNZ eight
	VZEROUPPER
	RET
