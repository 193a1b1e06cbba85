// Interleaved quantized weights, see packed.go, and quant/interleaved.go for where codes and
// scales are. SI is the weight. USE(p) takes Y4, pair p of eight outputs as 16-bit integers.

DATA fours<>+0(SB)/8, $0x000f000f000f000f
GLOBL fours<>(SB), RODATA|NOPTR, $8
DATA halves<>+0(SB)/8, $0x00ff00ff00ff00ff
GLOBL halves<>(SB), RODATA|NOPTR, $8
DATA tops<>+0(SB)/8, $0xc0c0c0c0c0c0c0c0
GLOBL tops<>(SB), RODATA|NOPTR, $8
DATA low<>+0(SB)/4, $0x0f
GLOBL low<>(SB), RODATA|NOPTR, $4
DATA high<>+0(SB)/4, $0x30
GLOBL high<>(SB), RODATA|NOPTR, $4

// Codes of 4 bits in Y3: those of one of four pairs, in Y4.
#define N0 VPAND Y15, Y3, Y4
#define N1 VPSRLW $4, Y3, Y4; VPAND Y15, Y4, Y4
#define N2 VPSRLW $8, Y3, Y4; VPAND Y15, Y4, Y4
#define N3 VPSRLW $12, Y3, Y4

// Eight elements of 4 bits, from pair p on, and 32 of eight outputs.
#define EIGHT4(o, p, USE) \
	VMOVDQU (o)(SI), Y3; \
	N0; USE(p); N1; USE((p+1)); N2; USE((p+2)); N3; USE((p+3))
#define ELEMENTS4(o, USE) \
	EIGHT4(o, 0, USE); EIGHT4(o+64, 4, USE); EIGHT4(o+128, 8, USE); EIGHT4(o+192, 12, USE)

// Four elements of 8 bits, and 32.
#define FOUR8(o, p, USE) \
	VMOVDQU (o)(SI), Y3; \
	VPSLLW $8, Y3, Y4; VPSRAW $8, Y4, Y4; USE(p); \
	VPSRAW $8, Y3, Y4; USE((p+1))
#define ELEMENTS8(o, USE) \
	FOUR8(o, 0, USE); FOUR8(o+64, 2, USE); FOUR8(o+128, 4, USE); FOUR8(o+192, 6, USE); \
	FOUR8(o+256, 8, USE); FOUR8(o+320, 10, USE); FOUR8(o+384, 12, USE); FOUR8(o+448, 14, USE)

// Sixteen elements of 6 bits: the lower six bits of the bytes of three words, and their upper two together, in Y8. Each word
// has two pairs, Y15 is words of 255 and Y14 the upper two bits of bytes.
#define TOP6(o, FIRST) VMOVDQU (o)(SI), Y3; VPAND Y14, Y3, Y4; FIRST; VPSRLW $2, Y8, Y8; VPANDN Y3, Y14, Y3
#define TOP_BEGIN VMOVDQA Y4, Y8
#define TOP_MORE VPOR Y4, Y8, Y8
#define PAIRS6(v, p, USE) VPAND Y15, v, Y4; USE(p); VPSRLW $8, v, Y4; USE((p+2))
#define ELEMENTS6(o, USE) \
	TOP6(o, TOP_BEGIN); PAIRS6(Y3, 0, USE); \
	TOP6(o+64, TOP_MORE); PAIRS6(Y3, 1, USE); \
	TOP6(o+128, TOP_MORE); PAIRS6(Y3, 4, USE); \
	PAIRS6(Y8, 5, USE)

// Scale Y11 and minimum Y12 of a sub-block of q4_k: lower bits at o of R8, upper bits at o of R9.
#define SCALE4K_EVEN(o, d, least) \
	VPMOVZXBD (o)(R8), Y9; VPMOVZXBD (o)(R9), Y3; \
	VPSLLD $4, Y3, Y11; VPAND Y14, Y11, Y11; VPSLLD $2, Y3, Y12; VPAND Y14, Y12, Y12; SCALE4K(d, least)
#define SCALE4K_ODD(o, d, least) \
	VPMOVZXBD (o+8)(R8), Y9; VPMOVZXBD (o)(R9), Y3; \
	VPAND Y14, Y3, Y11; VPSRLD $2, Y3, Y12; VPAND Y14, Y12, Y12; SCALE4K(d, least)
#define SCALE4K(d, least) \
	VPAND Y13, Y9, Y3; VPOR Y3, Y11, Y11; VPSRLD $4, Y9, Y9; VPOR Y9, Y12, Y12; \
	VCVTDQ2PS Y11, Y11; VMULPS d, Y11, Y11; VCVTDQ2PS Y12, Y12; VMULPS least, Y12, Y12

#define MASKS_4K \
	VPBROADCASTQ fours<>(SB), Y15; VPBROADCASTD high<>(SB), Y14; VPBROADCASTD low<>(SB), Y13

// Unpacking: pairs of the first eight outputs and of the others, in Y4, go to DI, 64 bytes from pair to pair, scales to R12
// and minima, negative, to R13.
#define PUT0(p) VMOVDQU Y4, (64*p)(DI)
#define PUT1(p) VMOVDQU Y4, (64*p+32)(DI)

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

#define LEAST4K(o) VPXOR Y3, Y3, Y3; VSUBPS Y12, Y3, Y12; VMOVUPS Y11, (o)(R12); VMOVUPS Y12, (o)(R13)
#define UNPACK4K(SCALE) \
	ELEMENTS4(0, PUT0); ELEMENTS4(32, PUT1); \
	SCALE(0, Y2, Y10); LEAST4K(0); \
	SCALE(128, Y0, Y1); LEAST4K(32); \
	ADDQ $256, SI; ADDQ $1024, DI; ADDQ $64, R12; ADDQ $64, R13
