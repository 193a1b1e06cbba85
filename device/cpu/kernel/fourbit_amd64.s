#include "textflag.h"

// Blocks of 64 elements in 32 bytes. The sixteen values of the code are multiplied by
// the absmax of the block once, and a permutation then looks all elements up. A byte
// becomes two indices: widened to 64 bits, its upper half goes to the lower index and
// all of it to the upper one, of which the permutation takes the low bits.

// ELEMENTS looks up 16 elements, of 8 bytes at an offset.
#define ELEMENTS(from, to) \
	VPMOVZXBQ from(SI), Z2 \
	VPSRLQ $4, Z2, Z3 \
	VPSLLQ $32, Z2, Z2 \
	VPORQ Z2, Z3, Z3 \
	VPERMPS Z1, Z3, Z4 \
	VMOVUPS Z4, to(DI)

// func fourBitBlocksAVX512(dst []float32, codes []byte, absmax []float32, values *[16]float32)
TEXT ·fourBitBlocksAVX512(SB), NOSPLIT, $0-80
	MOVQ dst_base+0(FP), DI
	MOVQ codes_base+24(FP), SI
	MOVQ absmax_base+48(FP), DX
	MOVQ absmax_len+56(FP), CX
	MOVQ values+72(FP), AX
	VMOVUPS (AX), Z0
	TESTQ CX, CX
	JZ done
loop:
	VMULPS.BCST (DX), Z0, Z1
	ELEMENTS(0, 0)
	ELEMENTS(8, 64)
	ELEMENTS(16, 128)
	ELEMENTS(24, 192)
	ADDQ $4, DX
	ADDQ $32, SI
	ADDQ $256, DI
	DECQ CX
	JNZ loop
done:
	VZEROUPPER
	RET

// EIGHT looks up 8 elements, of 4 bytes at an offset: in the lower and in the upper
// values, of which the fourth bit of the index chooses.
#define EIGHT(from, to) \
	VPMOVZXBQ from(SI), Y4 \
	VPSRLQ $4, Y4, Y5 \
	VPSLLQ $32, Y4, Y4 \
	VPOR Y4, Y5, Y5 \
	VPERMPS Y2, Y5, Y6 \
	VPERMPS Y3, Y5, Y7 \
	VPSLLD $28, Y5, Y5 \
	VBLENDVPS Y5, Y7, Y6, Y6 \
	VMOVUPS Y6, to(DI)

// func fourBitBlocksAVX2(dst []float32, codes []byte, absmax []float32, values *[16]float32)
TEXT ·fourBitBlocksAVX2(SB), NOSPLIT, $0-80
	MOVQ dst_base+0(FP), DI
	MOVQ codes_base+24(FP), SI
	MOVQ absmax_base+48(FP), DX
	MOVQ absmax_len+56(FP), CX
	MOVQ values+72(FP), AX
	VMOVUPS (AX), Y0
	VMOVUPS 32(AX), Y1
	TESTQ CX, CX
	JZ done
loop:
	VBROADCASTSS (DX), Y4
	VMULPS Y4, Y0, Y2
	VMULPS Y4, Y1, Y3
	EIGHT(0, 0)
	EIGHT(4, 32)
	EIGHT(8, 64)
	EIGHT(12, 96)
	EIGHT(16, 128)
	EIGHT(20, 160)
	EIGHT(24, 192)
	EIGHT(28, 224)
	ADDQ $4, DX
	ADDQ $32, SI
	ADDQ $256, DI
	DECQ CX
	JNZ loop
done:
	VZEROUPPER
	RET
