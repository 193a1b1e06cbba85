#include "textflag.h"

// Conversions of whole vectors; lengths are multiples of the lanes. bf16 is the upper
// half of a float32: widening shifts, narrowing adds 0x7fff and the last kept bit,
// which rounds to nearest even. A NaN (VCMPPS $3) keeps its upper bits and is made quiet, since
// the addition could turn it into infinity.
//
// away is narrow past the caches, to addresses that are a multiple of 32. No fence follows:
// whatever tells others that it is done, an atomic operation or a channel, is a locked
// instruction, and those wait for such writes too; a fence for every few KiB takes a tenth
// of an update's time.

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

#define NARROW_BF16_AVX512(STORE) \
	MOVQ dst_base+0(FP), DI; \
	MOVQ dst_len+8(FP), CX; \
	MOVQ src_base+24(FP), SI; \
	VPBROADCASTD rounding<>+0(SB), Z4; \
	VPBROADCASTD rounding<>+4(SB), Z5; \
	VPBROADCASTD rounding<>+8(SB), Z6; \
	SHRQ $4, CX; \
	JZ done; \
loop: \
	VMOVUPS (SI), Z0; \
	VPSRLD $16, Z0, Z1; \
	VPANDD Z5, Z1, Z2; \
	VPADDD Z4, Z0, Z3; \
	VPADDD Z2, Z3, Z3; \
	VPSRLD $16, Z3, Z3; \
	VCMPPS $3, Z0, Z0, K1; \
	VPORD Z6, Z1, K1, Z3; \
	STORE; \
	ADDQ $64, SI; \
	ADDQ $32, DI; \
	DECQ CX; \
	JNZ loop; \
done: \
	VZEROUPPER
#define NARROW_BF16_AVX512_NEAR VPMOVDW Z3, (DI)
#define NARROW_BF16_AVX512_AWAY VPMOVDW Z3, Y3; VMOVNTDQ Y3, (DI)

// func narrowBF16AVX512(dst []uint16, src []float32)
TEXT ·narrowBF16AVX512(SB), NOSPLIT, $0-48
	NARROW_BF16_AVX512(NARROW_BF16_AVX512_NEAR)
	RET

// func awayBF16AVX512(dst []uint16, src []float32)
TEXT ·awayBF16AVX512(SB), NOSPLIT, $0-48
	NARROW_BF16_AVX512(NARROW_BF16_AVX512_AWAY)
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

#define NARROW_F16_AVX512(STORE) \
	MOVQ dst_base+0(FP), DI; \
	MOVQ dst_len+8(FP), CX; \
	MOVQ src_base+24(FP), SI; \
	SHRQ $4, CX; \
	JZ done; \
loop: \
	VMOVUPS (SI), Z0; \
	STORE; \
	ADDQ $64, SI; \
	ADDQ $32, DI; \
	DECQ CX; \
	JNZ loop; \
done: \
	VZEROUPPER
#define NARROW_F16_AVX512_NEAR VCVTPS2PH $0, Z0, (DI)
#define NARROW_F16_AVX512_AWAY VCVTPS2PH $0, Z0, Y0; VMOVNTDQ Y0, (DI)

// func narrowF16AVX512(dst []uint16, src []float32)
TEXT ·narrowF16AVX512(SB), NOSPLIT, $0-48
	NARROW_F16_AVX512(NARROW_F16_AVX512_NEAR)
	RET

// func awayF16AVX512(dst []uint16, src []float32)
TEXT ·awayF16AVX512(SB), NOSPLIT, $0-48
	NARROW_F16_AVX512(NARROW_F16_AVX512_AWAY)
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

#define NARROW_BF16_AVX2(STORE) \
	MOVQ dst_base+0(FP), DI; \
	MOVQ dst_len+8(FP), CX; \
	MOVQ src_base+24(FP), SI; \
	VPBROADCASTD rounding<>+0(SB), Y4; \
	VPBROADCASTD rounding<>+4(SB), Y5; \
	VPBROADCASTD rounding<>+8(SB), Y6; \
	SHRQ $3, CX; \
	JZ done; \
loop: \
	VMOVUPS (SI), Y0; \
	VPSRLD $16, Y0, Y1; \
	VPAND Y5, Y1, Y2; \
	VPADDD Y4, Y0, Y3; \
	VPADDD Y2, Y3, Y3; \
	VPSRLD $16, Y3, Y3; \
	VCMPPS $3, Y0, Y0, Y7; \
	VPOR Y6, Y1, Y1; \
	VBLENDVPS Y7, Y1, Y3, Y3; \
	VPACKUSDW Y3, Y3, Y3; \
	VPERMQ $8, Y3, Y3; \
	STORE; \
	ADDQ $32, SI; \
	ADDQ $16, DI; \
	DECQ CX; \
	JNZ loop; \
done: \
	VZEROUPPER
#define NARROW_BF16_AVX2_NEAR VMOVUPS X3, (DI)
#define NARROW_BF16_AVX2_AWAY VMOVNTDQ X3, (DI)

// func narrowBF16AVX2(dst []uint16, src []float32)
TEXT ·narrowBF16AVX2(SB), NOSPLIT, $0-48
	NARROW_BF16_AVX2(NARROW_BF16_AVX2_NEAR)
	RET

// func awayBF16AVX2(dst []uint16, src []float32)
TEXT ·awayBF16AVX2(SB), NOSPLIT, $0-48
	NARROW_BF16_AVX2(NARROW_BF16_AVX2_AWAY)
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

#define NARROW_F16_AVX2(STORE) \
	MOVQ dst_base+0(FP), DI; \
	MOVQ dst_len+8(FP), CX; \
	MOVQ src_base+24(FP), SI; \
	SHRQ $3, CX; \
	JZ done; \
loop: \
	VMOVUPS (SI), Y0; \
	STORE; \
	ADDQ $32, SI; \
	ADDQ $16, DI; \
	DECQ CX; \
	JNZ loop; \
done: \
	VZEROUPPER
#define NARROW_F16_AVX2_NEAR VCVTPS2PH $0, Y0, (DI)
#define NARROW_F16_AVX2_AWAY VCVTPS2PH $0, Y0, X0; VMOVNTDQ X0, (DI)

// func narrowF16AVX2(dst []uint16, src []float32)
TEXT ·narrowF16AVX2(SB), NOSPLIT, $0-48
	NARROW_F16_AVX2(NARROW_F16_AVX2_NEAR)
	RET

// func awayF16AVX2(dst []uint16, src []float32)
TEXT ·awayF16AVX2(SB), NOSPLIT, $0-48
	NARROW_F16_AVX2(NARROW_F16_AVX2_AWAY)
	RET
