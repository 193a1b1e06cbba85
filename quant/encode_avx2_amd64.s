#include "go_asm.h"
#include "textflag.h"
#include "constants_amd64.h"

// LARGEST_LANE is the largest of the lanes of Y8, as unsigned integers, in X8. Spoils X9.
#define LARGEST_LANE \
	VEXTRACTI128 $1, Y8, X9; VPMAXUD X9, X8, X8; \
	VPSHUFD $0x4e, X8, X9; VPMAXUD X9, X8, X8; \
	VPSHUFD $0xb1, X8, X9; VPMAXUD X9, X8, X8

// LARGER takes eight more numbers into account. Y9 has all bits but the sign.
#define LARGER(from) VPAND from, Y9, Y10; VPMAXUD Y10, Y8, Y8

// LEVEL goes one level down for the numbers x at the places at, of which it makes one
// bit more: whether x is above the bound of its place. Spoils Y8.
#define LEVEL(bounds, x, at) \
	VPERMPS bounds, at, Y8; VCMPPS $0x1e, Y8, x, Y8; VPADDD at, at, at; VPSUBD Y8, at, at

// PLACE finds the places of eight numbers times Y11. The bounds are in Y12-Y15.
#define PLACE(from, x, at) \
	VMULPS from, Y11, x; VCMPPS $0x1e, Y12, x, at; VPSRLD $31, at, at; \
	LEVEL(Y13, x, at); LEVEL(Y14, x, at); LEVEL(Y15, x, at)

// HALF codes 32 numbers: places become bytes, in the order of the numbers, codes, and
// pairs of codes.
#define HALF(a, b, c, d, to) \
	PLACE(a, Y0, Y4); PLACE(b, Y1, Y5); PLACE(c, Y2, Y6); PLACE(d, Y3, Y7); \
	VPACKUSDW Y5, Y4, Y4; VPACKUSDW Y7, Y6, Y6; VPACKUSWB Y6, Y4, Y4; \
	VMOVDQU inOrder<>(SB), Y8; VPERMD Y4, Y8, Y4; \
	VBROADCASTI128 search_codes(AX), Y8; VPSHUFB Y4, Y8, Y4; \
	VPBROADCASTD constants<>+28(SB), Y8; VPMADDUBSW Y8, Y4, Y4; \
	VPACKUSWB Y4, Y4, Y4; VPERMQ $8, Y4, Y4; VMOVDQU X4, to

// Packing works within the halves of vectors; this brings four bytes at a time in order.
DATA inOrder<>+0(SB)/4, $0
DATA inOrder<>+4(SB)/4, $4
DATA inOrder<>+8(SB)/4, $1
DATA inOrder<>+12(SB)/4, $5
DATA inOrder<>+16(SB)/4, $2
DATA inOrder<>+20(SB)/4, $6
DATA inOrder<>+24(SB)/4, $3
DATA inOrder<>+28(SB)/4, $7
GLOBL inOrder<>(SB), RODATA|NOPTR, $32

// func fourBitAVX2(codes []byte, absmax, src []float32, s *search)
TEXT ·fourBitAVX2(SB), NOSPLIT, $0-80
	MOVQ codes_base+0(FP), DI
	MOVQ absmax_base+24(FP), DX
	MOVQ src_base+48(FP), SI
	MOVQ src_len+56(FP), CX
	MOVQ s+72(FP), AX
	VBROADCASTSS search_levels(AX), Y12
	VMOVUPS search_levels+32(AX), Y13
	VMOVUPS search_levels+64(AX), Y14
	VMOVUPS search_levels+96(AX), Y15
	SHRQ $6, CX
	JZ done
loop:
	VPBROADCASTD constants<>+0(SB), Y9
	VPAND (SI), Y9, Y8
	LARGER(32(SI))
	LARGER(64(SI))
	LARGER(96(SI))
	LARGER(128(SI))
	LARGER(160(SI))
	LARGER(192(SI))
	LARGER(224(SI))
	LARGEST_LANE
	VMOVSS X8, (DX)
	VMAXSS constants<>+20(SB), X8, X8
	VMOVSS constants<>+24(SB), X9
	VDIVSS X8, X9, X8
	VBROADCASTSS X8, Y11
	HALF((SI), 32(SI), 64(SI), 96(SI), (DI))
	HALF(128(SI), 160(SI), 192(SI), 224(SI), 16(DI))
	ADDQ $256, SI
	ADDQ $32, DI
	ADDQ $4, DX
	DECQ CX
	JNZ loop
done:
	VZEROUPPER
	RET

// func largestAVX2(x []float32) (bits uint32)
TEXT ·largestAVX2(SB), NOSPLIT, $0-28
	MOVQ x_base+0(FP), SI
	MOVQ x_len+8(FP), CX
	VPBROADCASTD constants<>+0(SB), Y9
	VPXOR Y8, Y8, Y8
	SHRQ $4, CX
	JZ reduce
loop:
	LARGER((SI))
	LARGER(32(SI))
	ADDQ $64, SI
	DECQ CX
	JNZ loop
reduce:
	LARGEST_LANE
	VMOVD X8, AX
	MOVL AX, bits+24(FP)
	VZEROUPPER
	RET

// WHOLE makes whole multiples of 1/Y2 of eight numbers, rounded to f16 first, to nearest
// even, which is how Go programs run.
#define WHOLE(from, x, low) \
	VMOVUPS from, x; VCVTPS2PH $0, x, low; VCVTPH2PS low, x; VMULPS Y2, x, x; VCVTPS2DQ x, x

// func rowI8AVX2(codes []byte, row []float32, factor float32)
TEXT ·rowI8AVX2(SB), NOSPLIT, $0-52
	MOVQ codes_base+0(FP), DI
	MOVQ row_base+24(FP), SI
	MOVQ row_len+32(FP), CX
	VBROADCASTSS factor+48(FP), Y2
	SHRQ $4, CX
	JZ done
loop:
	WHOLE((SI), Y0, X0)
	WHOLE(32(SI), Y1, X1)
	VPACKSSDW Y1, Y0, Y0
	VPERMQ $0xd8, Y0, Y0
	VEXTRACTI128 $1, Y0, X1
	VPACKSSWB X1, X0, X0
	VMOVDQU X0, (DI)
	ADDQ $64, SI
	ADDQ $16, DI
	DECQ CX
	JNZ loop
done:
	VZEROUPPER
	RET

// func dynamicAVX2(codes []byte, src []float32, r float32, cells *Cells, zero, below uint32)
// It is dynamicAVX512 with eight lanes.
TEXT ·dynamicAVX2(SB), NOSPLIT, $0-72
	MOVQ codes_base+0(FP), DI
	MOVQ src_base+24(FP), SI
	MOVQ src_len+32(FP), CX
	VBROADCASTSS r+48(FP), Y15
	MOVQ cells+56(FP), AX
	MOVL zero+64(FP), DX
	VMOVD DX, X14
	VPBROADCASTD X14, Y14
	MOVL below+68(FP), DX
	VMOVD DX, X13
	VPBROADCASTD X13, Y13
	VPBROADCASTD constants<>+0(SB), Y12
	VPBROADCASTD constants<>+4(SB), Y11
	VPBROADCASTD constants<>+8(SB), Y10
	VPBROADCASTD constants<>+16(SB), Y9
	VPXOR Y8, Y8, Y8
	SHRQ $3, CX
	JZ done
loop:
	VMULPS (SI), Y15, Y0
	VPAND Y12, Y0, Y1 // the number of the cell
	VPSRLD $16, Y1, Y1
	VPSUBD Y11, Y1, Y1
	VPMAXSD Y8, Y1, Y1
	VPMINSD Y10, Y1, Y1
	VPSRLD $31, Y0, Y2
	VPSLLD $12, Y2, Y2
	VPADDD Y2, Y1, Y1
	VPCMPEQD Y7, Y7, Y7
	VPGATHERDD Y7, (AX)(Y1*8), Y3  // bounds
	VPCMPEQD Y7, Y7, Y7
	VPGATHERDD Y7, 4(AX)(Y1*8), Y4 // codes
	VPSRAD $31, Y0, Y5 // the number in the order of integers
	VPAND Y12, Y5, Y5
	VPXOR Y0, Y5, Y5
	VPCMPGTD Y3, Y5, Y5
	VPSRLD $8, Y4, Y6
	VBLENDVPS Y5, Y6, Y4, Y4
	VPAND Y9, Y4, Y4
	VPCMPEQD Y14, Y4, Y5 // what is not zero moves off its code
	VMOVUPS (SI), Y6
	VCMPPS $0x0e, Y8, Y6, Y7 // above
	VCMPPS $0x01, Y8, Y6, Y6 // below
	VPAND Y5, Y7, Y7
	VPAND Y5, Y6, Y6
	VPAND Y13, Y6, Y6
	VPSUBD Y7, Y4, Y4
	VPSUBD Y6, Y4, Y4
	VPACKUSDW Y4, Y4, Y4
	VPERMQ $8, Y4, Y4
	VPACKUSWB X4, X4, X4
	VMOVQ X4, (DI)
	ADDQ $32, SI
	ADDQ $8, DI
	DECQ CX
	JNZ loop
done:
	VZEROUPPER
	RET
