#include "textflag.h"

// Matvecs as in packed_matvec_avx2_amd64.s, with the sums of sixteen outputs in one register, Z0, and instructions that
// multiply, widen and add: sums with the upper bytes of inputs are Z2, those with the lower ones Z3. The
// weight is read in order, and hardware fetches it ahead: prefetch instructions would slow one core down, from 32 to 23 GB/s of q8_0.

#define MATVEC_BEGIN \
	MOVQ w+0(FP), SI; \
	MOVQ dst+24(FP), DI; \
	MOVQ groups+40(FP), R10; \
group: \
	MOVQ x+8(FP), DX; \
	MOVQ records+16(FP), BX; \
	MOVQ blocks+32(FP), CX; \
	VXORPS X0, X0, X0; \
block: \

#define MATVEC_END \
	DECQ CX; \
	JNZ block; \
	VMOVUPS Z0, (DI); \
	ADDQ $64, DI; \
	DECQ R10; \
	JNZ group; \
	VZEROUPPER; \
	RET

// Bytes c times the upper and the lower bytes of four inputs at x of DX.
#define BYTES(c, x) VPDPBUSD.BCST (x)(DX), c, Z2; VPDPBUSD.BCST (x+8)(DX), c, Z3

// Codes of eight elements of 4 bits. Z15 is bytes of 15.
#define NIBBLES(o, x) \
	VMOVDQU64 (o)(SI), Z6; VPSRLW $4, Z6, Z7; VPANDD Z15, Z6, Z6; VPANDD Z15, Z7, Z7; \
	BYTES(Z6, x); BYTES(Z7, x+4)
#define NIBBLES32(o) NIBBLES(o, 0); NIBBLES(o+64, 16); NIBBLES(o+128, 32); NIBBLES(o+192, 48)

// Z2 becomes the sums as integers: 256 times the first and the others.
#define WHOLE VPSLLD $8, Z2, Z2; VPADDD Z3, Z2, Z2

// Integer sums with the scale of the weights in w and that of inputs are added to the sums.
#define SCALED(w, sums) VMULPS.BCST (BX), w, w; VCVTDQ2PS sums, sums; VFMADD231PS w, sums, Z0

DATA nibbles<>+0(SB)/4, $0x0f0f0f0f
GLOBL nibbles<>(SB), RODATA|NOPTR, $4

// func matvecQ4_0VNNI(w *byte, x *int16, records *record, dst *float32, blocks, groups int)
TEXT ·matvecQ4_0VNNI(SB), NOSPLIT, $0-48
	VPBROADCASTD nibbles<>(SB), Z15
	MATVEC_BEGIN
	VPXORD X2, X2, X2
	VPBROADCASTD 4(BX), Z3
	NIBBLES32(32)
	WHOLE
	VCVTPH2PS (SI), Z6
	SCALED(Z6, Z2)
	ADDQ $288, SI
	ADDQ $64, DX
	ADDQ $16, BX
	MATVEC_END

// Elements of 8 bits are multiplied as pairs of words, two pairs at x of DX, with sums Z2 and Z3.
#define FOUR(o, x) \
	VMOVDQU64 (o)(SI), Z6; VPSLLW $8, Z6, Z7; VPSRAW $8, Z6, Z6; VPSRAW $8, Z7, Z7; \
	VPDPWSSD.BCST (x)(DX), Z7, Z2; VPDPWSSD.BCST (x+4)(DX), Z6, Z3

// func matvecQ8_0VNNI(w *byte, x *int16, records *record, dst *float32, blocks, groups int)
TEXT ·matvecQ8_0VNNI(SB), NOSPLIT, $0-48
	MATVEC_BEGIN
	VPXORD X2, X2, X2
	VPXORD X3, X3, X3
	FOUR(32, 0)
	FOUR(96, 8)
	FOUR(160, 16)
	FOUR(224, 24)
	FOUR(288, 32)
	FOUR(352, 40)
	FOUR(416, 48)
	FOUR(480, 56)
	VPADDD Z3, Z2, Z2
	VCVTPH2PS (SI), Z6
	SCALED(Z6, Z2)
	ADDQ $544, SI
	ADDQ $64, DX
	ADDQ $16, BX
	MATVEC_END

// Each of the words of upper bits of scales of q4_k twice, for two sub-blocks, and the bits they are shifted by.
DATA twice<>+0(SB)/8, $0
DATA twice<>+8(SB)/8, $0
DATA twice<>+16(SB)/8, $1
DATA twice<>+24(SB)/8, $1
DATA twice<>+32(SB)/8, $2
DATA twice<>+40(SB)/8, $2
DATA twice<>+48(SB)/8, $3
DATA twice<>+56(SB)/8, $3
GLOBL twice<>(SB), RODATA|NOPTR, $64
DATA shifts<>+0(SB)/8, $0
DATA shifts<>+8(SB)/8, $4
DATA shifts<>+16(SB)/8, $0
DATA shifts<>+24(SB)/8, $4
DATA shifts<>+32(SB)/8, $0
DATA shifts<>+40(SB)/8, $4
DATA shifts<>+48(SB)/8, $0
DATA shifts<>+56(SB)/8, $4
GLOBL shifts<>(SB), RODATA|NOPTR, $64
// Eight rows and eight others of four sub-blocks each, from two registers.
DATA firsts<>+0(SB)/8, $0
DATA firsts<>+8(SB)/8, $8
DATA firsts<>+16(SB)/8, $1
DATA firsts<>+24(SB)/8, $9
DATA firsts<>+32(SB)/8, $2
DATA firsts<>+40(SB)/8, $10
DATA firsts<>+48(SB)/8, $3
DATA firsts<>+56(SB)/8, $11
GLOBL firsts<>(SB), RODATA|NOPTR, $64
DATA lasts<>+0(SB)/8, $4
DATA lasts<>+8(SB)/8, $12
DATA lasts<>+16(SB)/8, $5
DATA lasts<>+24(SB)/8, $13
DATA lasts<>+32(SB)/8, $6
DATA lasts<>+40(SB)/8, $14
DATA lasts<>+48(SB)/8, $7
DATA lasts<>+56(SB)/8, $15
GLOBL lasts<>(SB), RODATA|NOPTR, $64
DATA threes<>+0(SB)/4, $0x30303030
GLOBL threes<>(SB), RODATA|NOPTR, $4

// Scales of eight sub-blocks of eight rows in s and their minima in m, as bytes: the lower bits are those of s, the upper
// ones at o of SI. Z14 is bytes of 48, their upper bits.
#define SCALES4K(o, s, m) \
	VMOVDQU64 (o+32)(SI), s; VMOVDQU (o+96)(SI), Y5; VPERMQ Z5, Z13, Z5; VPSRLVQ Z12, Z5, Z5; \
	VPSRLW $4, s, m; VPANDD Z15, s, s; VPANDD Z15, m, m; \
	VPSLLW $4, Z5, Z6; VPTERNLOGD $0xf8, Z14, Z6, s; \
	VPSLLW $2, Z5, Z6; VPTERNLOGD $0xf8, Z14, Z6, m

// 32 elements with scales at 16·j of R13, and minima behind those of eight sub-blocks. Z8 and Z9 are d and dmin.
#define SUB4K(j) \
	VPXORD X2, X2, X2; VPXORD X3, X3, X3; \
	NIBBLES32(0); \
	WHOLE; \
	VPMOVZXBD (16*j)(R13), Z6; VCVTDQ2PS Z6, Z6; VMULPS Z8, Z6, Z6; \
	VPMOVZXBD (16*j+128)(R13), Z7; VCVTDQ2PS Z7, Z7; VMULPS Z9, Z7, Z7; \
	SCALED(Z6, Z2); \
	VFNMADD231PS.BCST 8(BX), Z7, Z0; \
	ADDQ $256, SI; ADDQ $64, DX; ADDQ $16, BX

// func matvecQ4KVNNI(w *byte, x *int16, records *record, dst *float32, blocks, groups int)
TEXT ·matvecQ4KVNNI(SB), NOSPLIT, $320-48
	VPBROADCASTD nibbles<>(SB), Z15
	VPBROADCASTD threes<>(SB), Z14
	VMOVDQU64 twice<>(SB), Z13
	VMOVDQU64 shifts<>(SB), Z12
	VMOVDQU64 firsts<>(SB), Z11
	VMOVDQU64 lasts<>(SB), Z10
	LEAQ 63(SP), R13
	ANDQ $~63, R13
	MATVEC_BEGIN
	VMOVDQU (SI), X8
	VMOVDQU 16(SI), X9
	VINSERTI128 $1, 128(SI), Y8, Y8
	VINSERTI128 $1, 144(SI), Y9, Y9
	VCVTPH2PS Y8, Z8
	VCVTPH2PS Y9, Z9
	SCALES4K(0, Z1, Z2)
	SCALES4K(128, Z3, Z4)
	VMOVDQA64 Z1, Z6
	VMOVDQA64 Z2, Z7
	VPERMT2Q Z3, Z11, Z1
	VPERMT2Q Z4, Z11, Z2
	VPERMT2Q Z3, Z10, Z6
	VPERMT2Q Z4, Z10, Z7
	VMOVDQA64 Z1, (R13)
	VMOVDQA64 Z6, 64(R13)
	VMOVDQA64 Z2, 128(R13)
	VMOVDQA64 Z7, 192(R13)
	ADDQ $256, SI
	SUB4K(0)
	SUB4K(1)
	SUB4K(2)
	SUB4K(3)
	SUB4K(4)
	SUB4K(5)
	SUB4K(6)
	SUB4K(7)
	MATVEC_END

DATA sixes<>+0(SB)/4, $0x3f3f3f3f
GLOBL sixes<>(SB), RODATA|NOPTR, $4
DATA tops<>+0(SB)/4, $0xc0c0c0c0
GLOBL tops<>(SB), RODATA|NOPTR, $4

// func matvecQ6KVNNI(w *byte, x *int16, records *record, dst *float32, blocks, groups int)
// Codes of 6 bits: four elements at a time of each row. The upper bits of three words are collected in Z9, the codes of
// the last four elements.
TEXT ·matvecQ6KVNNI(SB), NOSPLIT, $0-48
	VPBROADCASTD sixes<>(SB), Z15
	VPBROADCASTD tops<>(SB), Z14
	MATVEC_BEGIN
	VMOVDQU (SI), X1
	VINSERTI128 $1, 144(SI), Y1, Y1
	VCVTPH2PS Y1, Z1
	LEAQ 16(SI), R8
	ADDQ $288, SI
	MOVQ $16, R11
sixteen:
	VPXORD X2, X2, X2
	VPBROADCASTD 4(BX), Z3
	VMOVDQU64 (SI), Z6
	VMOVDQU64 64(SI), Z7
	VMOVDQU64 128(SI), Z8
	VPANDD Z14, Z6, Z9
	VPSRLW $2, Z9, Z9
	VPTERNLOGD $0xf8, Z14, Z7, Z9
	VPSRLW $2, Z9, Z9
	VPTERNLOGD $0xf8, Z14, Z8, Z9
	VPSRLW $2, Z9, Z9
	VPANDD Z15, Z6, Z6
	VPANDD Z15, Z7, Z7
	VPANDD Z15, Z8, Z8
	BYTES(Z6, 0)
	BYTES(Z7, 4)
	BYTES(Z8, 16)
	BYTES(Z9, 20)
	WHOLE
	VMOVQ (R8), X6
	VPINSRQ $1, 144(R8), X6, X6
	VPMOVSXBD X6, Z6
	VCVTDQ2PS Z6, Z6
	VMULPS Z1, Z6, Z6
	SCALED(Z6, Z2)
	ADDQ $192, SI
	ADDQ $32, DX
	ADDQ $16, BX
	ADDQ $8, R8
	DECQ R11
	JNZ sixteen
	MATVEC_END
