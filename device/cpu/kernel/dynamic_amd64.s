#include "go_asm.h"
#include "textflag.h"

// 8-bit dynamic codes, whole vectors of 16. Values are gathered from their map. The code
// of a number is found as package quant does it: the first bits are the number of a cell,
// whose rung the number is compared with, both as integers that are in the order of
// floats.

DATA cellConstants<>+0(SB)/4, $0x7fffffff
DATA cellConstants<>+4(SB)/4, $const_firstCell
DATA cellConstants<>+8(SB)/4, $(const_signCells-1)
DATA cellConstants<>+12(SB)/4, $1
DATA cellConstants<>+16(SB)/4, $0xff
GLOBL cellConstants<>(SB), RODATA|NOPTR, $20

// func dynamicValuesAVX512(dst []float32, codes []byte, absmax float32, values *[256]float32)
TEXT ·dynamicValuesAVX512(SB), NOSPLIT, $0-64
	MOVQ dst_base+0(FP), DI
	MOVQ dst_len+8(FP), CX
	MOVQ codes_base+24(FP), SI
	VBROADCASTSS absmax+48(FP), Z3
	MOVQ values+56(FP), AX
	SHRQ $4, CX
	JZ done
loop:
	VPMOVZXBD (SI), Z0
	KXNORW K1, K1, K1
	VGATHERDPS (AX)(Z0*4), K1, Z1
	VMULPS Z3, Z1, Z1
	VMOVUPS Z1, (DI)
	ADDQ $16, SI
	ADDQ $64, DI
	DECQ CX
	JNZ loop
done:
	VZEROUPPER
	RET

// func largestAVX512(src []float32) uint32
TEXT ·largestAVX512(SB), NOSPLIT, $0-28
	MOVQ src_base+0(FP), SI
	MOVQ src_len+8(FP), CX
	VPBROADCASTD cellConstants<>+0(SB), Z2
	VPXORD Z0, Z0, Z0
	SHRQ $4, CX
	JZ reduce
loop:
	VPANDD (SI), Z2, Z1
	VPMAXUD Z1, Z0, Z0
	ADDQ $64, SI
	DECQ CX
	JNZ loop
reduce:
	VEXTRACTI64X4 $1, Z0, Y1
	VPMAXUD Y1, Y0, Y0
	VEXTRACTI128 $1, Y0, X1
	VPMAXUD X1, X0, X0
	VPSHUFD $0x4e, X0, X1
	VPMAXUD X1, X0, X0
	VPSHUFD $0xb1, X0, X1
	VPMAXUD X1, X0, X0
	VMOVD X0, AX
	MOVL AX, ret+24(FP)
	VZEROUPPER
	RET

// func dynamicCodesAVX512(codes []byte, src []float32, r float32, cells *quant.Cells, zero, below uint32)
// zero is the code of 0, below how far under it that of the next smaller value is.
TEXT ·dynamicCodesAVX512(SB), NOSPLIT, $0-72
	MOVQ codes_base+0(FP), DI
	MOVQ codes_len+8(FP), CX
	MOVQ src_base+24(FP), SI
	VBROADCASTSS r+48(FP), Z16
	MOVQ cells+56(FP), AX
	MOVL zero+64(FP), DX
	VPBROADCASTD DX, Z17
	MOVL below+68(FP), DX
	VPBROADCASTD DX, Z18
	VPBROADCASTD cellConstants<>+0(SB), Z19
	VPBROADCASTD cellConstants<>+4(SB), Z20
	VPBROADCASTD cellConstants<>+8(SB), Z21
	VPBROADCASTD cellConstants<>+12(SB), Z22
	VPBROADCASTD cellConstants<>+16(SB), Z23
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
	VPGATHERDD (AX)(Z1*8), K1, Z3  // rungs
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
