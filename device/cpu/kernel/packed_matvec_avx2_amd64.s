#include "textflag.h"
#include "packed.h"

// Matvecs: groups of sixteen outputs, one after another: inputs are loaded once for two times eight of them. Record j of the
// input, 16 bytes at BX, has the scale of its j-th elements, what their integer sums begin with, and their sum.
//
// Sums are Y0 and Y1. Codes of 4 and 6 bits are multiplied as bytes, by the upper bytes of inputs and by
// the lower ones, see split in packed.go: sums of the first are words in Y2 and Y4, those of the others in Y3 and Y5.

DATA nibbles<>+0(SB)/8, $0x0f0f0f0f0f0f0f0f
GLOBL nibbles<>(SB), RODATA|NOPTR, $8
DATA ones<>+0(SB)/8, $0x0001000100010001
GLOBL ones<>(SB), RODATA|NOPTR, $8
DATA uppers<>+0(SB)/8, $0x0100010001000100
DATA uppers<>+8(SB)/8, $0x0100010001000100
DATA uppers<>+16(SB)/8, $0x0100010001000100
DATA uppers<>+24(SB)/8, $0x0100010001000100
GLOBL uppers<>(SB), RODATA|NOPTR, $32
DATA shifts<>+0(SB)/8, $0
DATA shifts<>+8(SB)/8, $4
DATA shifts<>+16(SB)/8, $0
DATA shifts<>+24(SB)/8, $4
GLOBL shifts<>(SB), RODATA|NOPTR, $32
DATA threes<>+0(SB)/8, $0x0303030303030303
DATA threes<>+8(SB)/8, $0x0303030303030303
DATA threes<>+16(SB)/8, $0x0303030303030303
DATA threes<>+24(SB)/8, $0x0303030303030303
GLOBL threes<>(SB), RODATA|NOPTR, $32
DATA twelves<>+0(SB)/8, $0x0c0c0c0c0c0c0c0c
DATA twelves<>+8(SB)/8, $0x0c0c0c0c0c0c0c0c
DATA twelves<>+16(SB)/8, $0x0c0c0c0c0c0c0c0c
DATA twelves<>+24(SB)/8, $0x0c0c0c0c0c0c0c0c
GLOBL twelves<>(SB), RODATA|NOPTR, $32

// R13 is scratch memory, 32 bytes aligned.
#define MATVEC_BEGIN \
	MOVQ w+0(FP), SI; \
	MOVQ dst+24(FP), DI; \
	MOVQ groups+40(FP), R10; \
	LEAQ 31(SP), R13; ANDQ $~31, R13; \
	VPBROADCASTQ ones<>(SB), Y14; \
group: \
	MOVQ x+8(FP), DX; \
	MOVQ records+16(FP), BX; \
	MOVQ blocks+32(FP), CX; \
	VXORPS Y0, Y0, Y0; \
	VXORPS Y1, Y1, Y1; \
block: \

#define MATVEC_END \
	DECQ CX; \
	JNZ block; \
	VMOVUPS Y0, (DI); \
	VMOVUPS Y1, 32(DI); \
	ADDQ $64, DI; \
	DECQ R10; \
	JNZ group; \
	VZEROUPPER; \
	RET

// Lines of the weight that come later.
#define LATER 2048
#define AHEAD(o) PREFETCHT0 (LATER+o)(SI)

// Inputs of eight elements at x of DX.
#define INPUTS(x) \
	VPBROADCASTD (x)(DX), Y8; VPBROADCASTD (x+4)(DX), Y9; VPBROADCASTD (x+8)(DX), Y10; VPBROADCASTD (x+12)(DX), Y11

// Codes Y6 and Y7 times the inputs begin sums h and l, or are added to them.
#define BEGIN(h, l) \
	VPMADDUBSW Y8, Y6, h; VPMADDUBSW Y10, Y6, l; \
	VPMADDUBSW Y9, Y7, Y12; VPADDW Y12, h, h; VPMADDUBSW Y11, Y7, Y7; VPADDW Y7, l, l
#define MORE(h, l) \
	VPMADDUBSW Y8, Y6, Y12; VPADDW Y12, h, h; VPMADDUBSW Y10, Y6, Y6; VPADDW Y6, l, l; \
	VPMADDUBSW Y9, Y7, Y12; VPADDW Y12, h, h; VPMADDUBSW Y11, Y7, Y7; VPADDW Y7, l, l

// Codes of eight elements of 4 bits.
#define CODES(at) VMOVDQU at, Y6; VPSRLW $4, Y6, Y7; VPAND Y15, Y6, Y6; VPAND Y15, Y7, Y7
#define NIBBLES(o, x, USE) AHEAD(o); INPUTS(x); CODES((o)(SI)); USE(Y2, Y3); CODES((o+32)(SI)); USE(Y4, Y5)
#define NIBBLES32(o) NIBBLES(o, 0, BEGIN); NIBBLES(o+64, 16, MORE); NIBBLES(o+128, 32, MORE); NIBBLES(o+192, 48, MORE)

// h becomes the sums as integers: 256 times the first and the others.
#define WHOLE(h, l) VPMADDWD Y13, h, h; VPMADDWD Y14, l, l; VPADDD l, h, h

// Integer sums with the scale of the weights in w and that of inputs in Y8 are added to the sums.
#define SCALED(w, sums, to) VMULPS w, Y8, w; VCVTDQ2PS sums, sums; VFMADD231PS w, sums, to

// func matvecQ4_0AVX2(w *byte, x *int16, records *record, dst *float32, blocks, groups int)
TEXT ·matvecQ4_0AVX2(SB), NOSPLIT, $32-48
	VPBROADCASTQ nibbles<>(SB), Y15
	VMOVDQU uppers<>(SB), Y13
	MATVEC_BEGIN
	NIBBLES32(32)
	AHEAD(256)
	WHOLE(Y2, Y3)
	WHOLE(Y4, Y5)
	VPBROADCASTD 4(BX), Y9
	VBROADCASTSS (BX), Y8
	VPADDD Y9, Y2, Y2
	VPADDD Y9, Y4, Y4
	VCVTPH2PS (SI), Y6
	VCVTPH2PS 16(SI), Y7
	SCALED(Y6, Y2, Y0)
	SCALED(Y7, Y4, Y1)
	ADDQ $288, SI
	ADDQ $64, DX
	ADDQ $16, BX
	MATVEC_END

// Scales, and then minima, of four sub-blocks of q4_k as bytes at o of R13, their lower bits at low and their upper bits
// in Y5.
#define SCALES4K(low, o) \
	VPSRLVQ shifts<>(SB), Y5, Y5; VMOVDQU low, Y6; \
	VPAND threes<>(SB), Y5, Y7; VPSLLW $4, Y7, Y7; VPAND Y15, Y6, Y8; VPOR Y8, Y7, Y7; VMOVDQU Y7, (o)(R13); \
	VPAND twelves<>(SB), Y5, Y7; VPSLLW $2, Y7, Y7; VPSRLW $4, Y6, Y6; VPAND Y15, Y6, Y6; VPOR Y6, Y7, Y7; VMOVDQU Y7, (o+64)(R13)

// Scale of sub-block j at o of R13, and the minimum times the sum of inputs in Y9 is taken off.
#define TAKE4K(j, o, d, sums, to) \
	VPMOVZXBD (o+8*j)(R13), Y6; VCVTDQ2PS Y6, Y6; VMULPS (d)(R13), Y6, Y6; \
	VPMOVZXBD (o+8*j+64)(R13), Y7; VCVTDQ2PS Y7, Y7; VMULPS (d+32)(R13), Y7, Y7; \
	SCALED(Y6, sums, to); \
	VFNMADD231PS Y9, Y7, to

#define SUB4K(j) \
	NIBBLES32(0); \
	WHOLE(Y2, Y3); WHOLE(Y4, Y5); \
	VBROADCASTSS (BX), Y8; VBROADCASTSS 8(BX), Y9; \
	TAKE4K(j, 0, 256, Y2, Y0); \
	TAKE4K(j, 128, 320, Y4, Y1); \
	ADDQ $256, SI; ADDQ $64, DX; ADDQ $16, BX

// func matvecQ4KAVX2(w *byte, x *int16, records *record, dst *float32, blocks, groups int)
TEXT ·matvecQ4KAVX2(SB), NOSPLIT, $416-48
	VPBROADCASTQ nibbles<>(SB), Y15
	VMOVDQU uppers<>(SB), Y13
	MATVEC_BEGIN
	VCVTPH2PS (SI), Y2
	VCVTPH2PS 16(SI), Y3
	VCVTPH2PS 128(SI), Y4
	VCVTPH2PS 144(SI), Y5
	VMOVUPS Y2, 256(R13)
	VMOVUPS Y3, 288(R13)
	VMOVUPS Y4, 320(R13)
	VMOVUPS Y5, 352(R13)
	AHEAD(0)
	AHEAD(64)
	AHEAD(128)
	AHEAD(192)
	VPERMQ $0x50, 96(SI), Y5
	SCALES4K(32(SI), 0)
	VPERMQ $0xfa, 96(SI), Y5
	SCALES4K(64(SI), 32)
	VPERMQ $0x50, 224(SI), Y5
	SCALES4K(160(SI), 128)
	VPERMQ $0xfa, 224(SI), Y5
	SCALES4K(192(SI), 160)
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

// Codes of 6 bits: four elements at a time of each row. The upper bits of words are collected in t: those of three words are
// the codes of the last four elements. Words hold the sums of eight elements, not of more.
#define SIX(at, c) VMOVDQU at, c; VPAND Y15, c, Y12
#define FIRST_TOP(t) VPSRLW $2, Y12, t
#define NEXT_TOP(t) VPOR Y12, t, t; VPSRLW $2, t, t
#define LOWER(c) VPANDN c, Y15, c
#define FIRST8(o, at, t, h, l) \
	SIX(at, h); FIRST_TOP(t); LOWER(h); VPMADDUBSW Y10, h, l; VPMADDUBSW Y8, h, h; \
	SIX(o, Y13); NEXT_TOP(t); LOWER(Y13); VPMADDUBSW Y11, Y13, Y12; VPADDW Y12, l, l; VPMADDUBSW Y9, Y13, Y13; VPADDW Y13, h, h; \
	VPMADDWD uppers<>(SB), h, h; VPMADDWD Y14, l, l; VPADDD l, h, h
#define NEXT8(at, t, h, l) \
	SIX(at, Y13); NEXT_TOP(t); LOWER(Y13); VPMADDUBSW Y10, Y13, l; VPMADDUBSW Y8, Y13, Y13; \
	VPMADDUBSW Y11, t, Y12; VPADDW Y12, l, l; VPMADDUBSW Y9, t, t; VPADDW t, Y13, Y13; \
	VPMADDWD uppers<>(SB), Y13, Y13; VPMADDWD Y14, l, l; VPADDD Y13, h, h; VPADDD l, h, h

// func matvecQ6KAVX2(w *byte, x *int16, records *record, dst *float32, blocks, groups int)
TEXT ·matvecQ6KAVX2(SB), NOSPLIT, $96-48
	VPBROADCASTQ tops<>(SB), Y15
	MATVEC_BEGIN
	VCVTPH2PS (SI), Y2
	VCVTPH2PS 144(SI), Y3
	VMOVUPS Y2, (R13)
	VMOVUPS Y3, 32(R13)
	LEAQ 16(SI), R8
	AHEAD(0)
	AHEAD(64)
	AHEAD(128)
	AHEAD(192)
	AHEAD(256)
	ADDQ $288, SI
	MOVQ $16, R11
sixteen:
	AHEAD(0)
	INPUTS(0)
	FIRST8(64(SI), (SI), Y6, Y2, Y3)
	FIRST8(96(SI), 32(SI), Y7, Y4, Y5)
	AHEAD(64)
	INPUTS(16)
	NEXT8(128(SI), Y6, Y2, Y3)
	NEXT8(160(SI), Y7, Y4, Y5)
	AHEAD(128)
	VPBROADCASTD 4(BX), Y9
	VBROADCASTSS (BX), Y8
	VPADDD Y9, Y2, Y2
	VPADDD Y9, Y4, Y4
	VPMOVSXBD (R8), Y6
	VPMOVSXBD 144(R8), Y7
	VCVTDQ2PS Y6, Y6
	VCVTDQ2PS Y7, Y7
	VMULPS (R13), Y6, Y6
	VMULPS 32(R13), Y7, Y7
	SCALED(Y6, Y2, Y0)
	SCALED(Y7, Y4, Y1)
	ADDQ $192, SI
	ADDQ $32, DX
	ADDQ $16, BX
	ADDQ $8, R8
	DECQ R11
	JNZ sixteen
	MATVEC_END

// Elements of 8 bits are multiplied as pairs of words, two pairs at x of DX.
#define WORDS(at, sums) \
	VMOVDQU at, Y6; VPSLLW $8, Y6, Y7; VPSRAW $8, Y7, Y7; VPSRAW $8, Y6, Y6; \
	VPMADDWD Y8, Y7, Y7; VPADDD Y7, sums, sums; VPMADDWD Y9, Y6, Y6; VPADDD Y6, sums, sums
#define FOUR(o, x) \
	AHEAD(o); VPBROADCASTD (x)(DX), Y8; VPBROADCASTD (x+4)(DX), Y9; WORDS((o)(SI), Y2); WORDS((o+32)(SI), Y4)

// func matvecQ8_0AVX2(w *byte, x *int16, records *record, dst *float32, blocks, groups int)
TEXT ·matvecQ8_0AVX2(SB), NOSPLIT, $32-48
	MATVEC_BEGIN
	VPXOR Y2, Y2, Y2
	VPXOR Y4, Y4, Y4
	FOUR(32, 0)
	FOUR(96, 8)
	FOUR(160, 16)
	FOUR(224, 24)
	FOUR(288, 32)
	FOUR(352, 40)
	FOUR(416, 48)
	FOUR(480, 56)
	AHEAD(512)
	VBROADCASTSS (BX), Y8
	VCVTPH2PS (SI), Y6
	VCVTPH2PS 16(SI), Y7
	SCALED(Y6, Y2, Y0)
	SCALED(Y7, Y4, Y1)
	ADDQ $544, SI
	ADDQ $64, DX
	ADDQ $16, BX
	MATVEC_END
