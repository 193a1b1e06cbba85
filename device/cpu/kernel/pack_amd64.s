#include "textflag.h"

// Packing: the panels a tile reads. A source stored across the panel is copied
// row by row; one stored along the panel is transposed four k at a time.

// func packCopyAVX512(dst *float32, dstStep int, src *float32, srcStep int, k int, cols int)
// dst[p*dstStep+j] = src[p*srcStep+j] for p < k, j < cols <= 32.
TEXT ·packCopyAVX512(SB), NOSPLIT, $0-48
	MOVQ dst+0(FP), DI
	MOVQ dstStep+8(FP), R8
	MOVQ src+16(FP), SI
	MOVQ srcStep+24(FP), R9
	MOVQ cols+40(FP), CX
	SHLQ $2, R8
	SHLQ $2, R9
	MOVQ $1, AX
	SHLQ CX, AX
	DECQ AX
	KMOVW AX, K1
	SHRQ $16, AX
	KMOVW AX, K2
	MOVQ k+32(FP), CX
	TESTQ CX, CX
	JZ done
row:
	VMOVUPS.Z (SI), K1, Z0
	VMOVUPS.Z 64(SI), K2, Z1
	PREFETCHT0 (SI)(R9*8)
	VMOVUPS Z0, K1, (DI)
	VMOVUPS Z1, K2, 64(DI)
	ADDQ R9, SI
	ADDQ R8, DI
	DECQ CX
	JNZ row
done:
	VZEROUPPER
	RET

// Gather four k of rows i, i+4, i+8 and i+12 into the four lanes of z.
#define GATHER4(off, z, x) \
	VMOVUPS (SI)(off), x; \
	VINSERTF32X4 $1, (R9)(off), z, z; \
	VINSERTF32X4 $2, (R10)(off), z, z; \
	VINSERTF32X4 $3, (R11)(off), z, z

// func packTransposeAVX512(dst *float32, dstStep int, src *float32, srcStep int, k int, rows int)
// dst[p*dstStep+i] = src[i*srcStep+p] for p < k, i < rows. k is a multiple of 4,
// rows is 12 or 16. Each 128-bit lane holds a 4 by 4 block, transposed in place.
TEXT ·packTransposeAVX512(SB), NOSPLIT, $0-48
	MOVQ dst+0(FP), DI
	MOVQ dstStep+8(FP), R12
	MOVQ src+16(FP), SI
	MOVQ srcStep+24(FP), R8
	MOVQ k+32(FP), CX
	SHLQ $2, R12
	SHLQ $2, R8
	LEAQ (R8)(R8*2), R13
	LEAQ (SI)(R8*4), R9
	LEAQ (R9)(R8*4), R10
	MOVQ $0xffff, AX
	LEAQ (R10)(R8*4), R11
	CMPQ rows+40(FP), $16
	JEQ mask
	MOVQ $0x0fff, AX
	MOVQ R10, R11
mask:
	KMOVW AX, K1
	XORQ AX, AX
	SHRQ $2, CX
	JZ done
block:
	GATHER4(AX*1, Z0, X0)
	GATHER4(R8*1, Z1, X1)
	GATHER4(R8*2, Z2, X2)
	GATHER4(R13*1, Z3, X3)
	VUNPCKLPS Z1, Z0, Z4  // a0 b0 a1 b1
	VUNPCKHPS Z1, Z0, Z5  // a2 b2 a3 b3
	VUNPCKLPS Z3, Z2, Z6  // c0 d0 c1 d1
	VUNPCKHPS Z3, Z2, Z7  // c2 d2 c3 d3
	VUNPCKLPD Z6, Z4, Z0  // a0 b0 c0 d0
	VUNPCKHPD Z6, Z4, Z1
	VUNPCKLPD Z7, Z5, Z2
	VUNPCKHPD Z7, Z5, Z3
	VMOVUPS Z0, K1, (DI)
	VMOVUPS Z1, K1, (DI)(R12*1)
	LEAQ (DI)(R12*2), DI
	VMOVUPS Z2, K1, (DI)
	VMOVUPS Z3, K1, (DI)(R12*1)
	LEAQ (DI)(R12*2), DI
	ADDQ $16, SI
	ADDQ $16, R9
	ADDQ $16, R10
	ADDQ $16, R11
	DECQ CX
	JNZ block
done:
	VZEROUPPER
	RET

// func packCopyAVX2(dst *float32, dstStep int, src *float32, srcStep int, k int, cols int)
// dst[p*dstStep+j] = src[p*srcStep+j] for p < k, j < cols <= 16.
TEXT ·packCopyAVX2(SB), NOSPLIT, $0-48
	MOVQ dst+0(FP), DI
	MOVQ dstStep+8(FP), R8
	MOVQ src+16(FP), SI
	MOVQ srcStep+24(FP), R9
	MOVQ k+32(FP), CX
	MOVQ cols+40(FP), AX
	SHLQ $2, R8
	SHLQ $2, R9
	SHLQ $2, AX
	LEAQ ·laneMask+64(SB), BX
	SUBQ AX, BX
	VMOVUPS (BX), Y2
	VMOVUPS 32(BX), Y3
	TESTQ CX, CX
	JZ done
row:
	VMASKMOVPS (SI), Y2, Y0
	VMASKMOVPS 32(SI), Y3, Y1
	PREFETCHT0 (SI)(R9*8)
	VMASKMOVPS Y0, Y2, (DI)
	VMASKMOVPS Y1, Y3, 32(DI)
	ADDQ R9, SI
	ADDQ R8, DI
	DECQ CX
	JNZ row
done:
	VZEROUPPER
	RET

// Gather four k of rows i and i+second into the two lanes of y.
#define GATHER2(off, y, x) VMOVUPS (SI)(off), x; VINSERTF128 $1, (R9)(off), y, y

// Store one k: the first four rows, then the second four.
#define SCATTER2(y, x) VMOVUPS x, (DI); VEXTRACTF128 $1, y, (DI)(R10*1); ADDQ R12, DI

// func packTransposeAVX2(dst *float32, dstStep int, src *float32, srcStep int, k int, rows int)
// dst[p*dstStep+i] = src[i*srcStep+p] for p < k, i < rows. k is a multiple of 4,
// rows is 6 or 8. The second four rows start at rows-4, so six rows overlap in two.
TEXT ·packTransposeAVX2(SB), NOSPLIT, $0-48
	MOVQ dst+0(FP), DI
	MOVQ dstStep+8(FP), R12
	MOVQ src+16(FP), SI
	MOVQ srcStep+24(FP), R8
	MOVQ k+32(FP), CX
	MOVQ rows+40(FP), R10
	SUBQ $4, R10
	SHLQ $2, R12
	SHLQ $2, R8
	MOVQ R10, R9
	IMULQ R8, R9
	ADDQ SI, R9
	SHLQ $2, R10
	LEAQ (R8)(R8*2), R13
	XORQ AX, AX
	SHRQ $2, CX
	JZ done
block:
	GATHER2(AX*1, Y0, X0)
	GATHER2(R8*1, Y1, X1)
	GATHER2(R8*2, Y2, X2)
	GATHER2(R13*1, Y3, X3)
	VUNPCKLPS Y1, Y0, Y4
	VUNPCKHPS Y1, Y0, Y5
	VUNPCKLPS Y3, Y2, Y6
	VUNPCKHPS Y3, Y2, Y7
	VUNPCKLPD Y6, Y4, Y0
	VUNPCKHPD Y6, Y4, Y1
	VUNPCKLPD Y7, Y5, Y2
	VUNPCKHPD Y7, Y5, Y3
	SCATTER2(Y0, X0)
	SCATTER2(Y1, X1)
	SCATTER2(Y2, X2)
	SCATTER2(Y3, X3)
	ADDQ $16, SI
	ADDQ $16, R9
	DECQ CX
	JNZ block
done:
	VZEROUPPER
	RET
