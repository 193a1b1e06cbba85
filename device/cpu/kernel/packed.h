// Interleaved quantized weights, see packed.go, and quant/interleaved.go for where codes and
// scales are. SI is the weight. A unit that includes this defines DOT(w, t, p): add the products
// of w, pairs of 16-bit integers of eight outputs, with pair p of the input at DX to the sums Y1.
// t may be spoiled.

DATA fours<>+0(SB)/8, $0x000f000f000f000f
GLOBL fours<>(SB), RODATA|NOPTR, $8
DATA twos<>+0(SB)/8, $0x0030003000300030
GLOBL twos<>(SB), RODATA|NOPTR, $8
DATA nibbles<>+0(SB)/8, $0x0f0f0f0f0f0f0f0f
GLOBL nibbles<>(SB), RODATA|NOPTR, $8
DATA sixes<>+0(SB)/8, $0x3030303030303030
GLOBL sixes<>(SB), RODATA|NOPTR, $8
DATA bytes<>+0(SB)/8, $0x0100010001000100
GLOBL bytes<>(SB), RODATA|NOPTR, $8
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
DATA low<>+0(SB)/4, $0x0f
GLOBL low<>(SB), RODATA|NOPTR, $4
DATA high<>+0(SB)/4, $0x30
GLOBL high<>(SB), RODATA|NOPTR, $4

// Codes of 4 bits in Y3: those of one of four pairs, in Y4.
#define N0 VPAND Y15, Y3, Y4
#define N1 VPSRLW $4, Y3, Y4; VPAND Y15, Y4, Y4
#define N2 VPSRLW $8, Y3, Y4; VPAND Y15, Y4, Y4
#define N3 VPSRLW $12, Y3, Y4

// Eight elements of 4 bits, from pair p on.
#define EIGHT4(o, p, USE) \
	VMOVDQU (o)(SI), Y3; \
	N0; USE(Y4, Y5, p); N1; USE(Y4, Y6, (p+1)); N2; USE(Y4, Y7, (p+2)); N3; USE(Y4, Y5, (p+3))
#define ELEMENTS4(o, USE) \
	EIGHT4(o, 0, USE); EIGHT4(o+32, 4, USE); EIGHT4(o+64, 8, USE); EIGHT4(o+96, 12, USE)

// Four elements of 8 bits.
#define FOUR8(o, p, USE) \
	VMOVDQU (o)(SI), Y3; \
	VPSLLW $8, Y3, Y4; VPSRAW $8, Y4, Y4; USE(Y4, Y5, p); \
	VPSRAW $8, Y3, Y4; USE(Y4, Y6, (p+1))
#define ELEMENTS8(o, USE) \
	FOUR8(o, 0, USE); FOUR8(o+32, 2, USE); FOUR8(o+64, 4, USE); FOUR8(o+96, 6, USE); \
	FOUR8(o+128, 8, USE); FOUR8(o+160, 10, USE); FOUR8(o+192, 12, USE); FOUR8(o+224, 14, USE)

// Sixteen elements of 6 bits: their upper bits are in Y8, and brought to Y9.
#define U0 VPSLLW $4, Y8, Y9; VPAND Y14, Y9, Y9
#define U1 VPSLLW $2, Y8, Y9; VPAND Y14, Y9, Y9
#define U2 VPAND Y14, Y8, Y9
#define U3 VPSRLW $2, Y8, Y9; VPAND Y14, Y9, Y9
#define U4 VPSRLW $4, Y8, Y9; VPAND Y14, Y9, Y9
#define U5 VPSRLW $6, Y8, Y9; VPAND Y14, Y9, Y9
#define U6 VPSRLW $8, Y8, Y9; VPAND Y14, Y9, Y9
#define U7 VPSRLW $10, Y8, Y9; VPAND Y14, Y9, Y9
#define PAIR6(N, U, t, p, USE) N; U; VPOR Y9, Y4, Y4; USE(Y4, t, p)
#define ELEMENTS6(USE) \
	VMOVDQU (SI), Y3; VMOVDQU 64(SI), Y8; \
	PAIR6(N0, U0, Y5, 0, USE); PAIR6(N1, U1, Y6, 1, USE); PAIR6(N2, U4, Y5, 2, USE); PAIR6(N3, U5, Y6, 3, USE); \
	VMOVDQU 32(SI), Y3; \
	PAIR6(N0, U2, Y5, 4, USE); PAIR6(N1, U3, Y6, 5, USE); PAIR6(N2, U6, Y5, 6, USE); PAIR6(N3, U7, Y6, 7, USE)

// Scale Y11 and minimum Y12 of a sub-block of q4_k: lower bits at o of R8, upper bits at R9. d
// and dmin are Y2 and Y10.
#define SCALE4K_EVEN \
	VPMOVZXBD (R8), Y9; VPMOVZXBD (R9), Y3; \
	VPSLLD $4, Y3, Y11; VPAND Y14, Y11, Y11; VPSLLD $2, Y3, Y12; VPAND Y14, Y12, Y12; SCALE4K
#define SCALE4K_ODD \
	VPMOVZXBD 8(R8), Y9; VPMOVZXBD (R9), Y3; \
	VPAND Y14, Y3, Y11; VPSRLD $2, Y3, Y12; VPAND Y14, Y12, Y12; SCALE4K
#define SCALE4K \
	VPAND Y13, Y9, Y3; VPOR Y3, Y11, Y11; VPSRLD $4, Y9, Y9; VPOR Y9, Y12, Y12; \
	VCVTDQ2PS Y11, Y11; VMULPS Y2, Y11, Y11; VCVTDQ2PS Y12, Y12; VMULPS Y10, Y12, Y12

#define MASKS_4K \
	VPBROADCASTQ fours<>(SB), Y15; VPBROADCASTD high<>(SB), Y14; VPBROADCASTD low<>(SB), Y13

// Lines of the weight that come later.
#define AHEAD(o) PREFETCHT0 (o)(SI)

// A matvec: groups of eight outputs, one after another. Record j of the input, 16 bytes at BX,
// has the scale of its j-th elements, what their integer sums begin with, and their sum.
#define MATVEC_BEGIN \
	MOVQ w+0(FP), SI; \
	MOVQ dst+24(FP), DI; \
	MOVQ groups+40(FP), R10; \
group: \
	MOVQ x+8(FP), DX; \
	MOVQ records+16(FP), BX; \
	MOVQ blocks+32(FP), CX; \
	VXORPS Y0, Y0, Y0; \
block:

#define MATVEC_END \
	DECQ CX; \
	JNZ block; \
	VMOVUPS Y0, (DI); \
	ADDQ $32, DI; \
	DECQ R10; \
	JNZ group; \
	VZEROUPPER; \
	RET

// Add the integer sums Y1, with the scale of the weights in w.
#define SCALED(w) \
	VCVTDQ2PS Y1, Y1; VBROADCASTSS (BX), Y7; VMULPS w, Y7, Y7; VFMADD231PS Y7, Y1, Y0

// Codes of 4 and 6 bits are multiplied as bytes, by the upper bytes of inputs and by the lower ones,
// see split in packed.go: sums of the first are words in Y1, those of the others, unsigned, in Y2.
// Codes are Y3 and Y4, their inputs at o of DX.
#define BYTES(o, USE1, USE2) \
	VPBROADCASTD (o)(DX), Y5; VPBROADCASTD (o+4)(DX), Y6; VPBROADCASTD (o+8)(DX), Y7; VPBROADCASTD (o+12)(DX), Y8; \
	USE1(Y5, Y3, Y7, Y3); \
	USE2(Y6, Y4, Y8, Y4)
#define BEGIN(h, c, l, d) VPMADDUBSW h, c, Y1; VPMADDUBSW d, l, Y2
#define MORE(h, c, l, d) VPMADDUBSW h, c, h; VPADDW h, Y1, Y1; VPMADDUBSW d, l, l; VPADDW l, Y2, Y2

// Eight elements of 4 bits.
#define NIBBLES(o, x, USE) \
	VMOVDQU (o)(SI), Y3; VPSRLW $4, Y3, Y4; VPAND Y15, Y3, Y3; VPAND Y15, Y4, Y4; BYTES(x, USE, MORE)
#define NIBBLES32(o) NIBBLES(o, 0, BEGIN); NIBBLES(o+32, 16, MORE); NIBBLES(o+64, 32, MORE); NIBBLES(o+96, 48, MORE)

// Y1 becomes the sums as integers: 256 times the first and the others. Y14 is zero, Y13 is words of 256.
#define WHOLE \
	VPMADDWD Y13, Y1, Y1; VPSRLD $16, Y2, Y5; VPBLENDW $0xaa, Y14, Y2, Y2; VPADDD Y5, Y1, Y1; VPADDD Y2, Y1, Y1
#define WHOLE_MASKS VPBROADCASTQ nibbles<>(SB), Y15; VPXOR Y14, Y14, Y14; VPBROADCASTQ bytes<>(SB), Y13

#define MATVEC4_0 \
	WHOLE_MASKS; \
	MATVEC_BEGIN; \
	AHEAD(2048); AHEAD(2112); AHEAD(2176); \
	NIBBLES32(16); \
	WHOLE; \
	VPBROADCASTD 4(BX), Y5; VPADDD Y5, Y1, Y1; \
	VCVTPH2PS (SI), Y9; \
	SCALED(Y9); \
	ADDQ $144, SI; ADDQ $64, DX; ADDQ $16, BX; \
	MATVEC_END

#define MATVEC8_0 \
	MATVEC_BEGIN; \
	AHEAD(2048); AHEAD(2112); AHEAD(2176); AHEAD(2240); AHEAD(2304); \
	VPXOR Y1, Y1, Y1; \
	ELEMENTS8(16, DOT); \
	VCVTPH2PS (SI), Y2; \
	SCALED(Y2); \
	ADDQ $272, SI; ADDQ $64, DX; ADDQ $16, BX; \
	MATVEC_END

// Scales, and then minima, of four sub-blocks of q4_k as bytes at o of the stack, their lower bits
// at l of SI and their upper bits in Y5.
#define SCALES4K(l, o) \
	VPSRLVQ shifts<>(SB), Y5, Y5; VMOVDQU (l)(SI), Y6; \
	VPAND threes<>(SB), Y5, Y7; VPSLLW $4, Y7, Y7; VPAND Y15, Y6, Y8; VPOR Y8, Y7, Y7; VMOVDQU Y7, (o)(SP); \
	VPAND twelves<>(SB), Y5, Y7; VPSLLW $2, Y7, Y7; VPSRLW $4, Y6, Y6; VPAND Y15, Y6, Y6; VPOR Y6, Y7, Y7; VMOVDQU Y7, (o+64)(SP)

#define SUB4K(j) \
	AHEAD(2048); AHEAD(2112); \
	NIBBLES32(0); \
	WHOLE; \
	VPMOVZXBD (8*j)(SP), Y11; VCVTDQ2PS Y11, Y11; VMULPS Y9, Y11, Y11; \
	VPMOVZXBD (8*j+64)(SP), Y12; VCVTDQ2PS Y12, Y12; VMULPS Y10, Y12, Y12; \
	SCALED(Y11); \
	VBROADCASTSS 8(BX), Y7; VFNMADD231PS Y7, Y12, Y0; \
	ADDQ $128, SI; ADDQ $64, DX; ADDQ $16, BX

#define MATVEC4_K \
	WHOLE_MASKS; \
	MATVEC_BEGIN; \
	VCVTPH2PS (SI), Y9; VCVTPH2PS 16(SI), Y10; \
	VPERMQ $0x50, 96(SI), Y5; SCALES4K(32, 0); \
	VPERMQ $0xfa, 96(SI), Y5; SCALES4K(64, 32); \
	ADDQ $128, SI; \
	SUB4K(0); SUB4K(1); SUB4K(2); SUB4K(3); SUB4K(4); SUB4K(5); SUB4K(6); SUB4K(7); \
	MATVEC_END

// Eight elements of 6 bits, their upper bits by instructions U and V from Y11.
#define SIXES(o, U, V, x) \
	VMOVDQU (o)(SI), Y3; VPSRLW $4, Y3, Y4; VPAND Y15, Y3, Y3; VPAND Y15, Y4, Y4; \
	U; VPAND Y12, Y5, Y5; VPOR Y5, Y3, Y3; V; VPAND Y12, Y6, Y6; VPOR Y6, Y4, Y4; \
	BYTES(x, BEGIN, MORE)

#define SIX0 VPSLLW $4, Y11, Y5
#define SIX1 VPSLLW $2, Y11, Y6
#define SIX2 VMOVDQA Y11, Y5
#define SIX3 VPSRLW $2, Y11, Y6

// Words hold the sums of eight elements of 6 bits, not of more.
#define MATVEC6_K \
	WHOLE_MASKS; VPBROADCASTQ sixes<>(SB), Y12; \
	MATVEC_BEGIN; \
	VCVTPH2PS (SI), Y9; \
	LEAQ 16(SI), R8; ADDQ $144, SI; \
	MOVQ $16, R11; \
sixteen: \
	AHEAD(2048); AHEAD(2112); \
	VMOVDQU 64(SI), Y11; \
	SIXES(0, SIX0, SIX1, 0); \
	WHOLE; \
	VPBROADCASTD 4(BX), Y10; VPADDD Y1, Y10, Y10; \
	SIXES(32, SIX2, SIX3, 16); \
	WHOLE; \
	VPADDD Y10, Y1, Y1; \
	VPMOVSXBD (R8), Y11; VCVTDQ2PS Y11, Y11; VMULPS Y9, Y11, Y11; \
	SCALED(Y11); \
	ADDQ $96, SI; ADDQ $32, DX; ADDQ $16, BX; ADDQ $8, R8; \
	DECQ R11; \
	JNZ sixteen; \
	MATVEC_END

// Unpacking: pairs go to DI, 64 bytes apart, scales to R12 and minima, negative, to R13.
#define PUT(w, t, p) VMOVDQU w, (64*p)(DI)

#define UNPACK_BEGIN \
	MOVQ w+0(FP), SI; \
	MOVQ pairs+8(FP), DI; \
	MOVQ scales+16(FP), R12; \
	MOVQ minima+24(FP), R13; \
	MOVQ blocks+32(FP), CX; \
block:

#define UNPACK_END \
	DECQ CX; \
	JNZ block; \
	VZEROUPPER; \
	RET

#define UNPACK4K(SCALE) \
	ELEMENTS4(0, PUT); \
	SCALE; \
	VPXOR Y3, Y3, Y3; VSUBPS Y12, Y3, Y12; \
	VMOVUPS Y11, (R12); VMOVUPS Y12, (R13); \
	ADDQ $128, SI; ADDQ $1024, DI; ADDQ $64, R12; ADDQ $64, R13
