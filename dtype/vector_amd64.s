#include "textflag.h"

// Conversions of whole vectors; lengths are multiples of the lanes. bf16 is the upper
// half of a float32: widening shifts, narrowing adds 0x7fff and the last kept bit,
// which rounds to nearest even. A NaN (VCMPPS $3) keeps its upper bits and is made quiet,
// since the addition could turn it into infinity.
//
// away is narrow past the caches, to addresses that are a multiple of 32. No fence follows:
// whatever tells others that it is done, an atomic operation or a channel, is a locked
// instruction, and those wait for such writes too; a fence for every few KiB takes a tenth
// of an update's time.

DATA rounding<>+0(SB)/4, $0x7fff
DATA rounding<>+4(SB)/4, $1
DATA rounding<>+8(SB)/4, $0x40
GLOBL rounding<>(SB), RODATA|NOPTR, $12

// EACH converts the vector at SI to the one at DI, for all of them; bits of the number of
// lanes, bytes of a vector of either side.
#define EACH(bits, from, to, CONVERT) \
	MOVQ dst_base+0(FP), DI; MOVQ dst_len+8(FP), CX; MOVQ src_base+24(FP), SI; \
	SHRQ $bits, CX; JZ done; \
loop: \
	CONVERT; \
	ADDQ $from, SI; ADDQ $to, DI; DECQ CX; JNZ loop; \
done: \
	VZEROUPPER; RET

#define WIDEN512(CONVERT) EACH(4, 32, 64, CONVERT)
#define NARROW512(CONVERT) EACH(4, 64, 32, CONVERT)
#define WIDEN256(CONVERT) EACH(3, 16, 32, CONVERT)
#define NARROW256(CONVERT) EACH(3, 32, 16, CONVERT)

// ROUND512 leaves 16 numbers from SI in the lower halves of Z3.
#define ROUND512 \
	VMOVUPS (SI), Z0; VPSRLD $16, Z0, Z1; VPANDD Z5, Z1, Z2; \
	VPADDD Z4, Z0, Z3; VPADDD Z2, Z3, Z3; VPSRLD $16, Z3, Z3; \
	VCMPPS $3, Z0, Z0, K1; VPORD Z6, Z1, K1, Z3
#define ROUNDING512 VPBROADCASTD rounding<>+0(SB), Z4; VPBROADCASTD rounding<>+4(SB), Z5; VPBROADCASTD rounding<>+8(SB), Z6

// ROUND256 leaves 8 numbers from SI in X3.
#define ROUND256 \
	VMOVUPS (SI), Y0; VPSRLD $16, Y0, Y1; VPAND Y5, Y1, Y2; \
	VPADDD Y4, Y0, Y3; VPADDD Y2, Y3, Y3; VPSRLD $16, Y3, Y3; \
	VCMPPS $3, Y0, Y0, Y7; VPOR Y6, Y1, Y1; VBLENDVPS Y7, Y1, Y3, Y3; \
	VPACKUSDW Y3, Y3, Y3; VPERMQ $8, Y3, Y3
#define ROUNDING256 VPBROADCASTD rounding<>+0(SB), Y4; VPBROADCASTD rounding<>+4(SB), Y5; VPBROADCASTD rounding<>+8(SB), Y6

#define WIDEN_BF16_512 VPMOVZXWD (SI), Z0; VPSLLD $16, Z0, Z0; VMOVUPS Z0, (DI)
// func widenBF16AVX512(dst []float32, src []uint16)
TEXT ·widenBF16AVX512(SB), NOSPLIT, $0-48
	WIDEN512(WIDEN_BF16_512)

#define NARROW_BF16_512 ROUND512; VPMOVDW Z3, (DI)
// func narrowBF16AVX512(dst []uint16, src []float32)
TEXT ·narrowBF16AVX512(SB), NOSPLIT, $0-48
	ROUNDING512
	NARROW512(NARROW_BF16_512)

#define AWAY_BF16_512 ROUND512; VPMOVDW Z3, Y3; VMOVNTDQ Y3, (DI)
// func awayBF16AVX512(dst []uint16, src []float32)
TEXT ·awayBF16AVX512(SB), NOSPLIT, $0-48
	ROUNDING512
	NARROW512(AWAY_BF16_512)

#define WIDEN_F16_512 VCVTPH2PS (SI), Z0; VMOVUPS Z0, (DI)
// func widenF16AVX512(dst []float32, src []uint16)
TEXT ·widenF16AVX512(SB), NOSPLIT, $0-48
	WIDEN512(WIDEN_F16_512)

#define NARROW_F16_512 VMOVUPS (SI), Z0; VCVTPS2PH $0, Z0, (DI)
// func narrowF16AVX512(dst []uint16, src []float32)
TEXT ·narrowF16AVX512(SB), NOSPLIT, $0-48
	NARROW512(NARROW_F16_512)

#define AWAY_F16_512 VMOVUPS (SI), Z0; VCVTPS2PH $0, Z0, Y0; VMOVNTDQ Y0, (DI)
// func awayF16AVX512(dst []uint16, src []float32)
TEXT ·awayF16AVX512(SB), NOSPLIT, $0-48
	NARROW512(AWAY_F16_512)

#define WIDEN_BF16_256 VPMOVZXWD (SI), Y0; VPSLLD $16, Y0, Y0; VMOVUPS Y0, (DI)
// func widenBF16AVX2(dst []float32, src []uint16)
TEXT ·widenBF16AVX2(SB), NOSPLIT, $0-48
	WIDEN256(WIDEN_BF16_256)

#define NARROW_BF16_256 ROUND256; VMOVUPS X3, (DI)
// func narrowBF16AVX2(dst []uint16, src []float32)
TEXT ·narrowBF16AVX2(SB), NOSPLIT, $0-48
	ROUNDING256
	NARROW256(NARROW_BF16_256)

#define AWAY_BF16_256 ROUND256; VMOVNTDQ X3, (DI)
// func awayBF16AVX2(dst []uint16, src []float32)
TEXT ·awayBF16AVX2(SB), NOSPLIT, $0-48
	ROUNDING256
	NARROW256(AWAY_BF16_256)

#define WIDEN_F16_256 VCVTPH2PS (SI), Y0; VMOVUPS Y0, (DI)
// func widenF16AVX2(dst []float32, src []uint16)
TEXT ·widenF16AVX2(SB), NOSPLIT, $0-48
	WIDEN256(WIDEN_F16_256)

#define NARROW_F16_256 VMOVUPS (SI), Y0; VCVTPS2PH $0, Y0, (DI)
// func narrowF16AVX2(dst []uint16, src []float32)
TEXT ·narrowF16AVX2(SB), NOSPLIT, $0-48
	NARROW256(NARROW_F16_256)

#define AWAY_F16_256 VMOVUPS (SI), Y0; VCVTPS2PH $0, Y0, X0; VMOVNTDQ X0, (DI)
// func awayF16AVX2(dst []uint16, src []float32)
TEXT ·awayF16AVX2(SB), NOSPLIT, $0-48
	NARROW256(AWAY_F16_256)
