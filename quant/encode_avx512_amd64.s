#include "go_asm.h"
#include "textflag.h"
#include "constants_amd64.h"

// LARGEST_LANE is the largest of the lanes of Z8, as unsigned integers, in X8. Spoils X9.
#define LARGEST_LANE \
	VEXTRACTI64X4 $1, Z8, Y9; VPMAXUD Y9, Y8, Y8; \
	VEXTRACTI128 $1, Y8, X9; VPMAXUD X9, X8, X8; \
	VPSHUFD $0x4e, X8, X9; VPMAXUD X9, X8, X8; \
	VPSHUFD $0xb1, X8, X9; VPMAXUD X9, X8, X8

// LEVEL goes one level down for the numbers x at the places at, of which it makes one
// bit more: whether x is above the bound of its place. Z20 is 1.
#define LEVEL(bounds, x, at, tmp) \
	VPERMPS bounds, at, tmp; VCMPPS $0x1e, tmp, x, K1; \
	VPADDD at, at, at; VPADDD Z20, at, K1, at

// PLACE finds the places of x, PACK makes codes of them, two to a byte, the first in the
// upper half, which are the low bytes of eight quadwords. Tables are in Z16-Z19 and Z21.
#define PLACE(x, at, tmp) \
	VCMPPS $0x1e, Z16, x, K1; VMOVDQA32.Z Z20, K1, at; \
	LEVEL(Z17, x, at, tmp); LEVEL(Z18, x, at, tmp); LEVEL(Z19, x, at, tmp)
#define PACK(at, tmp, to) \
	VPERMD Z21, at, at; VPSLLQ $4, at, tmp; VPSRLQ $32, at, at; VPORQ tmp, at, at; VPMOVQB at, to

// func fourBitAVX512(codes []byte, absmax, src []float32, s *search)
TEXT ·fourBitAVX512(SB), NOSPLIT, $0-80
	MOVQ codes_base+0(FP), DI
	MOVQ absmax_base+24(FP), DX
	MOVQ src_base+48(FP), SI
	MOVQ src_len+56(FP), CX
	MOVQ s+72(FP), AX
	VBROADCASTSS search_levels(AX), Z16
	VMOVUPS search_levels+32(AX), Y17
	VMOVUPS search_levels+64(AX), Y18
	VMOVUPS search_levels+96(AX), Y19
	VPMOVZXBD search_codes(AX), Z21
	VPBROADCASTD constants<>+12(SB), Z20
	VPBROADCASTD constants<>+0(SB), Z22
	VMOVSS constants<>+20(SB), X23
	VMOVSS constants<>+24(SB), X24
	SHRQ $6, CX
	JZ done
loop:
	VMOVUPS (SI), Z0
	VMOVUPS 64(SI), Z1
	VMOVUPS 128(SI), Z2
	VMOVUPS 192(SI), Z3
	VPANDD Z22, Z0, Z8
	VPANDD Z22, Z1, Z9
	VPANDD Z22, Z2, Z10
	VPANDD Z22, Z3, Z11
	VPMAXUD Z9, Z8, Z8
	VPMAXUD Z11, Z10, Z10
	VPMAXUD Z10, Z8, Z8
	LARGEST_LANE
	VMOVSS X8, (DX)
	VMAXSS X23, X8, X8
	VDIVSS X8, X24, X8
	VBROADCASTSS X8, Z8
	VMULPS Z8, Z0, Z0
	VMULPS Z8, Z1, Z1
	VMULPS Z8, Z2, Z2
	VMULPS Z8, Z3, Z3
	PLACE(Z0, Z4, Z9)
	PLACE(Z1, Z5, Z10)
	PLACE(Z2, Z6, Z11)
	PLACE(Z3, Z7, Z12)
	PACK(Z4, Z9, (DI))
	PACK(Z5, Z10, 8(DI))
	PACK(Z6, Z11, 16(DI))
	PACK(Z7, Z12, 24(DI))
	ADDQ $256, SI
	ADDQ $32, DI
	ADDQ $4, DX
	DECQ CX
	JNZ loop
done:
	VZEROUPPER
	RET

// func largestAVX512(x []float32) (bits uint32)
TEXT ·largestAVX512(SB), NOSPLIT, $0-28
	MOVQ x_base+0(FP), SI
	MOVQ x_len+8(FP), CX
	VPBROADCASTD constants<>+0(SB), Z2
	VPXORD Z8, Z8, Z8
	SHRQ $4, CX
	JZ reduce
loop:
	VPANDD (SI), Z2, Z1
	VPMAXUD Z1, Z8, Z8
	ADDQ $64, SI
	DECQ CX
	JNZ loop
reduce:
	LARGEST_LANE
	VMOVD X8, AX
	MOVL AX, bits+24(FP)
	VZEROUPPER
	RET

// func rowI8AVX512(codes []byte, row []float32, factor float32)
TEXT ·rowI8AVX512(SB), NOSPLIT, $0-52
	MOVQ codes_base+0(FP), DI
	MOVQ row_base+24(FP), SI
	MOVQ row_len+32(FP), CX
	VBROADCASTSS factor+48(FP), Z2
	SHRQ $4, CX
	JZ done
loop:
	VMOVUPS (SI), Z0
	VCVTPS2PH $0, Z0, Y0
	VCVTPH2PS Y0, Z0
	VMULPS Z2, Z0, Z0
	VCVTPS2DQ Z0, Z0 // to nearest even, which is how Go programs run
	VPMOVSDB Z0, (DI)
	ADDQ $64, SI
	ADDQ $16, DI
	DECQ CX
	JNZ loop
done:
	VZEROUPPER
	RET

// func dynamicAVX512(codes []byte, src []float32, r float32, cells *Cells, zero, below uint32)
// The code of a number is found as encoder.find does it: the first bits are the number of a
// cell, whose bound the number is compared with, both as integers that are in the order of
// floats. What is not zero and would get the code zero gets the next, or the one below:
// below says how far that is.
TEXT ·dynamicAVX512(SB), NOSPLIT, $0-72
	MOVQ codes_base+0(FP), DI
	MOVQ src_base+24(FP), SI
	MOVQ src_len+32(FP), CX
	VBROADCASTSS r+48(FP), Z16
	MOVQ cells+56(FP), AX
	MOVL zero+64(FP), DX
	VPBROADCASTD DX, Z17
	MOVL below+68(FP), DX
	VPBROADCASTD DX, Z18
	VPBROADCASTD constants<>+0(SB), Z19
	VPBROADCASTD constants<>+4(SB), Z20
	VPBROADCASTD constants<>+8(SB), Z21
	VPBROADCASTD constants<>+12(SB), Z22
	VPBROADCASTD constants<>+16(SB), Z23
	VPXORD Z24, Z24, Z24
	SHRQ $4, CX
	JZ done
loop:
	VMULPS (SI), Z16, Z0
	VPANDD Z19, Z0, Z1 // the number of the cell
	VPSRLD $16, Z1, Z1
	VPSUBD Z20, Z1, Z1
	VPMAXSD Z24, Z1, Z1
	VPMINSD Z21, Z1, Z1
	VPSRLD $31, Z0, Z2
	VPSLLD $12, Z2, Z2
	VPADDD Z2, Z1, Z1
	KXNORW K1, K1, K1
	KXNORW K2, K2, K2
	VPGATHERDD (AX)(Z1*8), K1, Z3  // bounds
	VPGATHERDD 4(AX)(Z1*8), K2, Z4 // codes
	VPSRAD $31, Z0, Z5 // the number in the order of integers
	VPANDD Z19, Z5, Z5
	VPXORD Z0, Z5, Z5
	VPCMPGTD Z3, Z5, K3
	VPSRLD $8, Z4, K3, Z4
	VPANDD Z23, Z4, Z4
	VPCMPEQD Z17, Z4, K4
	KTESTW K4, K4
	JNZ zeros
store:
	VPMOVDB Z4, (DI)
	ADDQ $64, SI
	ADDQ $16, DI
	DECQ CX
	JNZ loop
done:
	VZEROUPPER
	RET

zeros: // what is not zero moves off its code
	VMOVUPS (SI), Z6
	VCMPPS $0x0e, Z24, Z6, K4, K5 // above
	VPADDD Z22, Z4, K5, Z4
	VCMPPS $0x01, Z24, Z6, K4, K6 // below
	VPSUBD Z18, Z4, K6, Z4
	JMP store
