#include "textflag.h"
#include "transpose.h"

// Packing: the panels a tile reads. A source stored across the panel is copied
// row by row; one stored along the panel is transposed four k at a time.

// func packCopyAVX512(dst *float32, step int, src *float32, srcStep, k, width, panels int)
// Panel q gets dst[(q*k+p)*step+j] = src[p*srcStep+q*step+j] for p < k, j < width <= 64.
// All panels are filled side by side, so that rows of the source are read whole.
TEXT ·packCopyAVX512(SB), NOSPLIT, $0-56
	MOVQ dst+0(FP), DI
	MOVQ step+8(FP), R8
	MOVQ src+16(FP), SI
	MOVQ srcStep+24(FP), R9
	MOVQ panels+48(FP), R11
	SHLQ $2, R8
	SHLQ $2, R9
	MOVQ $-1, AX
	MOVQ $64, CX
	SUBQ width+40(FP), CX
	SHRQ CX, AX
	KMOVW AX, K1
	SHRQ $16, AX
	KMOVW AX, K2
	SHRQ $16, AX
	KMOVW AX, K3
	SHRQ $16, AX
	KMOVW AX, K4
	MOVQ k+32(FP), R12
	MOVQ R12, R10
	IMULQ R8, R10          // bytes from panel to panel
	CMPQ width+40(FP), $16
	JLE few
wide:
	MOVQ SI, DX
	MOVQ DI, BX
	MOVQ R11, CX
widePanel:
	VMOVUPS.Z (DX), K1, Z0
	VMOVUPS.Z 64(DX), K2, Z1
	VMOVUPS.Z 128(DX), K3, Z2
	VMOVUPS.Z 192(DX), K4, Z3
	PREFETCHT0 (DX)(R9*4)
	PREFETCHT0 64(DX)(R9*4)
	PREFETCHT0 128(DX)(R9*4)
	PREFETCHT0 192(DX)(R9*4)
	VMOVUPS Z0, K1, (BX)
	VMOVUPS Z1, K2, 64(BX)
	VMOVUPS Z2, K3, 128(BX)
	VMOVUPS Z3, K4, 192(BX)
	ADDQ R8, DX
	ADDQ R10, BX
	DECQ CX
	JNZ widePanel
	ADDQ R9, SI
	ADDQ R8, DI
	DECQ R12
	JNZ wide
	VZEROUPPER
	RET
few:
	CMPQ R11, $8
	JNE narrow
	CMPQ width+40(FP), $6
	JNE narrow
	CMPQ R8, $24
	JNE narrow
	LEAQ (DI)(R10*2), R13
	ADDQ R10, R13
	LEAQ (R13)(R10*2), R14
	ADDQ R10, R14
	JMP eightNext
	// A strip of rows: eight panels of 6. Their rows are stored 8 wide, without masks, since what is beyond is
	// overwritten by the next k; the last k, which has none, and the last panel are stored as they are.
eight:
	VMOVUPS (SI), Y0
	VMOVUPS 24(SI), Y1
	VMOVUPS 48(SI), Y2
	VMOVUPS 72(SI), Y3
	VMOVUPS 96(SI), Y4
	VMOVUPS 120(SI), Y5
	VMOVUPS 144(SI), Y6
	VMOVUPS 168(SI), X7
	VMOVSD 184(SI), X8
	PREFETCHT0 (SI)(R9*8)
	PREFETCHT0 64(SI)(R9*8)
	PREFETCHT0 128(SI)(R9*8)
	VMOVUPS Y0, (DI)
	VMOVUPS Y1, (DI)(R10*1)
	VMOVUPS Y2, (DI)(R10*2)
	VMOVUPS Y3, (R13)
	VMOVUPS Y4, (R13)(R10*1)
	VMOVUPS Y5, (R13)(R10*2)
	VMOVUPS Y6, (R14)
	VMOVUPS X7, (R14)(R10*1)
	VMOVSD X8, 16(R14)(R10*1)
	ADDQ R9, SI
	ADDQ R8, DI
	ADDQ R8, R13
	ADDQ R8, R14
eightNext:
	DECQ R12
	JNZ eight
	INCQ R12
narrow:
	MOVQ SI, DX
	MOVQ DI, BX
	MOVQ R11, CX
narrowPanel:
	VMOVUPS.Z (DX), K1, Z0
	PREFETCHT0 (DX)(R9*8)
	VMOVUPS Z0, K1, (BX)
	ADDQ R8, DX
	ADDQ R10, BX
	DECQ CX
	JNZ narrowPanel
	ADDQ R9, SI
	ADDQ R8, DI
	DECQ R12
	JNZ narrow
	VZEROUPPER
	RET

// Transpose the 4 by 4 blocks in the lanes of a to d, and store a row of them all at a time, R12 apart from DI on.
// p to s are free.
#define TRANSPOSED(a, b, c, d, p, q, r, s) \
	BLOCKS(a, b, c, d, p, q, r, s); \
	VMOVUPS a, (DI); \
	VMOVUPS b, (DI)(R12*1); \
	LEAQ (DI)(R12*2), DI; \
	VMOVUPS c, (DI); \
	VMOVUPS d, (DI)(R12*1); \
	LEAQ (DI)(R12*2), DI

// Gather four k of rows i, i+4, i+8 and i+12 into the four lanes of z.
#define GATHER4(off, z, x) \
	VMOVUPS (SI)(off), x; \
	VINSERTF32X4 $1, (R9)(off), z, z; \
	VINSERTF32X4 $2, (R10)(off), z, z; \
	VINSERTF32X4 $3, (R11)(off), z, z

// Transpose four k: each 128-bit lane holds a 4 by 4 block. AX is zero.
#define FOUR \
	GATHER4(AX*1, Z0, X0); \
	GATHER4(R8*1, Z1, X1); \
	GATHER4(R8*2, Z2, X2); \
	GATHER4(R13*1, Z3, X3); \
	TRANSPOSED(Z0, Z1, Z2, Z3, Z4, Z5, Z6, Z7)

// Load a cache line of each of four rows from row on, and prefetch those of the rows 16 further.
#define LINES(row, ahead, a, b, c, d) \
	VMOVUPS (row), a; VMOVUPS (row)(R8*1), b; VMOVUPS (row)(R8*2), c; VMOVUPS (row)(R13*1), d; \
	PREFETCHT1 (ahead); PREFETCHT1 (ahead)(R8*1); PREFETCHT1 (ahead)(R8*2); PREFETCHT1 (ahead)(R13*1)

// Transpose lanes: a to d hold lanes of the same k modulo 4, of four rows each. They become the rows of 16 for k,
// k+4, k+8 and k+12, which are stored 4 steps apart from at on; R14 is 4 steps, R15 is 12.
#define LANES4(a, b, c, d, at) \
	VSHUFF32X4 $0x88, b, a, Z16; VSHUFF32X4 $0xdd, b, a, Z17; VSHUFF32X4 $0x88, d, c, Z18; VSHUFF32X4 $0xdd, d, c, Z19; \
	VSHUFF32X4 $0x88, Z18, Z16, a; VSHUFF32X4 $0x88, Z19, Z17, b; VSHUFF32X4 $0xdd, Z18, Z16, c; VSHUFF32X4 $0xdd, Z19, Z17, d; \
	VMOVUPS a, (at); VMOVUPS b, (at)(R14*1); VMOVUPS c, (at)(R14*2); VMOVUPS d, (at)(R15*1)

// func packTransposeAVX512(dst *float32, dstStep int, src *float32, srcStep, k int)
// dst[p*dstStep+i] = src[i*srcStep+p] for p < k, i < 16. k is a multiple of 4. 16 k are a cache line of each row, which is
// read once: rows a power of two apart would not stay in the first-level cache.
TEXT ·packTransposeAVX512(SB), NOSPLIT, $0-40
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
	LEAQ (R10)(R8*4), R11
	LEAQ (R12*4), R14
	LEAQ (R14)(R14*2), R15
	XORQ AX, AX
	SUBQ $16, CX
	JLT rest
line:
	LEAQ (R11)(R8*4), DX
	LINES(SI, DX, Z0, Z1, Z2, Z3)
	LEAQ (DX)(R8*4), DX
	LINES(R9, DX, Z4, Z5, Z6, Z7)
	LEAQ (DX)(R8*4), DX
	LINES(R10, DX, Z8, Z9, Z10, Z11)
	LEAQ (DX)(R8*4), DX
	LINES(R11, DX, Z12, Z13, Z14, Z15)
	BLOCKS(Z0, Z1, Z2, Z3, Z16, Z17, Z18, Z19)
	BLOCKS(Z4, Z5, Z6, Z7, Z20, Z21, Z22, Z23)
	BLOCKS(Z8, Z9, Z10, Z11, Z24, Z25, Z26, Z27)
	BLOCKS(Z12, Z13, Z14, Z15, Z28, Z29, Z30, Z31)
	LANES4(Z0, Z4, Z8, Z12, DI)
	ADDQ R12, DI
	LANES4(Z1, Z5, Z9, Z13, DI)
	ADDQ R12, DI
	LANES4(Z2, Z6, Z10, Z14, DI)
	ADDQ R12, DI
	LANES4(Z3, Z7, Z11, Z15, DI)
	ADDQ R12, DI
	ADDQ R15, DI
	ADDQ $64, SI
	ADDQ $64, R9
	ADDQ $64, R10
	ADDQ $64, R11
	SUBQ $16, CX
	JGE line
rest:
	ADDQ $16, CX
	SHRQ $2, CX
	JZ done
block:
	FOUR
	ADDQ $16, SI
	ADDQ $16, R9
	ADDQ $16, R10
	ADDQ $16, R11
	DECQ CX
	JNZ block
done:
	VZEROUPPER
	RET

// func packCopyAVX2(dst *float32, step int, src *float32, srcStep, k, width, panels int)
// The same with width <= 16.
TEXT ·packCopyAVX2(SB), NOSPLIT, $0-56
	MOVQ dst+0(FP), DI
	MOVQ step+8(FP), R8
	MOVQ src+16(FP), SI
	MOVQ srcStep+24(FP), R9
	MOVQ k+32(FP), R12
	MOVQ width+40(FP), AX
	MOVQ panels+48(FP), R11
	SHLQ $2, R8
	SHLQ $2, R9
	SHLQ $2, AX
	LEAQ ·laneMask+64(SB), BX
	SUBQ AX, BX
	VMOVUPS (BX), Y2
	VMOVUPS 32(BX), Y3
	MOVQ R12, R10
	IMULQ R8, R10          // bytes from panel to panel
	CMPQ AX, $64
	JEQ sixteenRow
	CMPQ AX, $24
	JEQ sixRow
row:
	MOVQ SI, DX
	MOVQ DI, BX
	MOVQ R11, CX
panel:
	VMASKMOVPS (DX), Y2, Y0
	VMASKMOVPS 32(DX), Y3, Y1
	PREFETCHT0 (DX)(R9*8)
	VMASKMOVPS Y0, Y2, (BX)
	VMASKMOVPS Y1, Y3, 32(BX)
	ADDQ R8, DX
	ADDQ R10, BX
	DECQ CX
	JNZ panel
	ADDQ R9, SI
	ADDQ R8, DI
	DECQ R12
	JNZ row
	VZEROUPPER
	RET

// Whole panels of 16 and of 6, without masked stores, which take as long as many others.
sixteenRow:
	MOVQ SI, DX
	MOVQ DI, BX
	MOVQ R11, CX
sixteenPanel:
	VMOVUPS (DX), Y0
	VMOVUPS 32(DX), Y1
	PREFETCHT0 (DX)(R9*8)
	VMOVUPS Y0, (BX)
	VMOVUPS Y1, 32(BX)
	ADDQ R8, DX
	ADDQ R10, BX
	DECQ CX
	JNZ sixteenPanel
	ADDQ R9, SI
	ADDQ R8, DI
	DECQ R12
	JNZ sixteenRow
	VZEROUPPER
	RET
sixRow:
	MOVQ SI, DX
	MOVQ DI, BX
	MOVQ R11, CX
sixPanel:
	VMOVUPS (DX), X0
	VMOVSD 16(DX), X1
	PREFETCHT0 (DX)(R9*8)
	VMOVUPS X0, (BX)
	VMOVSD X1, 16(BX)
	ADDQ R8, DX
	ADDQ R10, BX
	DECQ CX
	JNZ sixPanel
	ADDQ R9, SI
	ADDQ R8, DI
	DECQ R12
	JNZ sixRow
	VZEROUPPER
	RET

// Gather four k of rows i and i+4, at o bytes from where k stands, into the two lanes of y.
#define GATHER2(o, off, y, x) VMOVUPS o(SI)(off), x; VINSERTF128 $1, o(R9)(off), y, y

// Transpose four k of eight rows. AX is zero.
#define EIGHT(o) \
	GATHER2(o, AX*1, Y0, X0); \
	GATHER2(o, R8*1, Y1, X1); \
	GATHER2(o, R8*2, Y2, X2); \
	GATHER2(o, R13*1, Y3, X3); \
	TRANSPOSED(Y0, Y1, Y2, Y3, Y4, Y5, Y6, Y7)

// func packTransposeAVX2(dst *float32, dstStep int, src *float32, srcStep, k int)
// dst[p*dstStep+i] = src[i*srcStep+p] for p < k, i < 8. k is a multiple of 4. The strip that comes
// next is fetched meanwhile.
TEXT ·packTransposeAVX2(SB), NOSPLIT, $0-40
	MOVQ dst+0(FP), DI
	MOVQ dstStep+8(FP), R12
	MOVQ src+16(FP), SI
	MOVQ srcStep+24(FP), R8
	MOVQ k+32(FP), CX
	SHLQ $2, R12
	SHLQ $2, R8
	LEAQ (SI)(R8*4), R9
	LEAQ (R8)(R8*2), R13
	LEAQ (SI)(R8*8), R10
	LEAQ (R9)(R8*8), R11
	XORQ AX, AX
	SUBQ $16, CX
	JLT rest
line:
	PREFETCHT0 (R10)
	PREFETCHT0 (R10)(R8*1)
	EIGHT(0)
	PREFETCHT0 (R10)(R8*2)
	PREFETCHT0 (R10)(R13*1)
	EIGHT(16)
	PREFETCHT0 (R11)
	PREFETCHT0 (R11)(R8*1)
	EIGHT(32)
	PREFETCHT0 (R11)(R8*2)
	PREFETCHT0 (R11)(R13*1)
	EIGHT(48)
	ADDQ $64, SI
	ADDQ $64, R9
	ADDQ $64, R10
	ADDQ $64, R11
	SUBQ $16, CX
	JGE line
rest:
	ADDQ $16, CX
	SHRQ $2, CX
	JZ done
block:
	EIGHT(0)
	ADDQ $16, SI
	ADDQ $16, R9
	DECQ CX
	JNZ block
done:
	VZEROUPPER
	RET
