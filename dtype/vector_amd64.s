#include "textflag.h"

// Conversions of whole vectors; lengths are multiples of the lanes. bf16 is the upper
// half of a float32: widening shifts, narrowing adds 0x7fff and the last kept bit,
// which rounds to nearest even. A NaN keeps its upper bits and is made quiet, since
// the addition could turn it into infinity.

DATA rounding<>+0(SB)/4, $0x7fff
DATA rounding<>+4(SB)/4, $1
DATA rounding<>+8(SB)/4, $0x40
GLOBL rounding<>(SB), RODATA|NOPTR, $12

// func widenBF16AVX512(dst []float32, src []uint16)
TEXT ·widenBF16AVX512(SB), NOSPLIT, $0-48
	MOVQ dst_base+0(FP), DI
	MOVQ dst_len+8(FP), CX
	MOVQ src_base+24(FP), SI
	SHRQ $4, CX
	JZ done
loop:
	VPMOVZXWD (SI), Z0
	VPSLLD $16, Z0, Z0
	VMOVUPS Z0, (DI)
	ADDQ $32, SI
	ADDQ $64, DI
	DECQ CX
	JNZ loop
done:
	VZEROUPPER
	RET

// func narrowBF16AVX512(dst []uint16, src []float32)
TEXT ·narrowBF16AVX512(SB), NOSPLIT, $0-48
	MOVQ dst_base+0(FP), DI
	MOVQ dst_len+8(FP), CX
	MOVQ src_base+24(FP), SI
	VPBROADCASTD rounding<>+0(SB), Z4
	VPBROADCASTD rounding<>+4(SB), Z5
	VPBROADCASTD rounding<>+8(SB), Z6
	SHRQ $4, CX
	JZ done
loop:
	VMOVUPS (SI), Z0
	VPSRLD $16, Z0, Z1
	VPANDD Z5, Z1, Z2
	VPADDD Z4, Z0, Z3
	VPADDD Z2, Z3, Z3
	VPSRLD $16, Z3, Z3
	VCMPPS $3, Z0, Z0, K1 // not a number
	VPORD Z6, Z1, K1, Z3
	VPMOVDW Z3, (DI)
	ADDQ $64, SI
	ADDQ $32, DI
	DECQ CX
	JNZ loop
done:
	VZEROUPPER
	RET

// func widenF16AVX512(dst []float32, src []uint16)
TEXT ·widenF16AVX512(SB), NOSPLIT, $0-48
	MOVQ dst_base+0(FP), DI
	MOVQ dst_len+8(FP), CX
	MOVQ src_base+24(FP), SI
	SHRQ $4, CX
	JZ done
loop:
	VCVTPH2PS (SI), Z0
	VMOVUPS Z0, (DI)
	ADDQ $32, SI
	ADDQ $64, DI
	DECQ CX
	JNZ loop
done:
	VZEROUPPER
	RET

// func narrowF16AVX512(dst []uint16, src []float32)
TEXT ·narrowF16AVX512(SB), NOSPLIT, $0-48
	MOVQ dst_base+0(FP), DI
	MOVQ dst_len+8(FP), CX
	MOVQ src_base+24(FP), SI
	SHRQ $4, CX
	JZ done
loop:
	VMOVUPS (SI), Z0
	VCVTPS2PH $0, Z0, (DI)
	ADDQ $64, SI
	ADDQ $32, DI
	DECQ CX
	JNZ loop
done:
	VZEROUPPER
	RET

// func widenBF16AVX2(dst []float32, src []uint16)
TEXT ·widenBF16AVX2(SB), NOSPLIT, $0-48
	MOVQ dst_base+0(FP), DI
	MOVQ dst_len+8(FP), CX
	MOVQ src_base+24(FP), SI
	SHRQ $3, CX
	JZ done
loop:
	VPMOVZXWD (SI), Y0
	VPSLLD $16, Y0, Y0
	VMOVUPS Y0, (DI)
	ADDQ $16, SI
	ADDQ $32, DI
	DECQ CX
	JNZ loop
done:
	VZEROUPPER
	RET

// func narrowBF16AVX2(dst []uint16, src []float32)
TEXT ·narrowBF16AVX2(SB), NOSPLIT, $0-48
	MOVQ dst_base+0(FP), DI
	MOVQ dst_len+8(FP), CX
	MOVQ src_base+24(FP), SI
	VPBROADCASTD rounding<>+0(SB), Y4
	VPBROADCASTD rounding<>+4(SB), Y5
	VPBROADCASTD rounding<>+8(SB), Y6
	SHRQ $3, CX
	JZ done
loop:
	VMOVUPS (SI), Y0
	VPSRLD $16, Y0, Y1
	VPAND Y5, Y1, Y2
	VPADDD Y4, Y0, Y3
	VPADDD Y2, Y3, Y3
	VPSRLD $16, Y3, Y3
	VCMPPS $3, Y0, Y0, Y7 // not a number
	VPOR Y6, Y1, Y1
	VBLENDVPS Y7, Y1, Y3, Y3
	VPACKUSDW Y3, Y3, Y3
	VPERMQ $8, Y3, Y3
	VMOVUPS X3, (DI)
	ADDQ $32, SI
	ADDQ $16, DI
	DECQ CX
	JNZ loop
done:
	VZEROUPPER
	RET

// func widenF16AVX2(dst []float32, src []uint16)
TEXT ·widenF16AVX2(SB), NOSPLIT, $0-48
	MOVQ dst_base+0(FP), DI
	MOVQ dst_len+8(FP), CX
	MOVQ src_base+24(FP), SI
	SHRQ $3, CX
	JZ done
loop:
	VCVTPH2PS (SI), Y0
	VMOVUPS Y0, (DI)
	ADDQ $16, SI
	ADDQ $32, DI
	DECQ CX
	JNZ loop
done:
	VZEROUPPER
	RET

// func narrowF16AVX2(dst []uint16, src []float32)
TEXT ·narrowF16AVX2(SB), NOSPLIT, $0-48
	MOVQ dst_base+0(FP), DI
	MOVQ dst_len+8(FP), CX
	MOVQ src_base+24(FP), SI
	SHRQ $3, CX
	JZ done
loop:
	VMOVUPS (SI), Y0
	VCVTPS2PH $0, Y0, (DI)
	ADDQ $32, SI
	ADDQ $16, DI
	DECQ CX
	JNZ loop
done:
	VZEROUPPER
	RET
