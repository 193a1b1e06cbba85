#include "textflag.h"
#include "go_asm.h"
#include "lanes_avx512.h"
#include "math.h"

// The random bits of op.Stream, eight positions at a time: the finalizer of splitmix64.
DATA splitmix<>+0(SB)/8, $0x9e3779b97f4a7c15
DATA splitmix<>+8(SB)/8, $0xbf58476d1ce4e5b9
DATA splitmix<>+16(SB)/8, $0x94d049bb133111eb
GLOBL splitmix<>(SB), RODATA|NOPTR, $24

DATA eight<>+0(SB)/8, $0
DATA eight<>+8(SB)/8, $1
DATA eight<>+16(SB)/8, $2
DATA eight<>+24(SB)/8, $3
DATA eight<>+32(SB)/8, $4
DATA eight<>+40(SB)/8, $5
DATA eight<>+48(SB)/8, $6
DATA eight<>+56(SB)/8, $7
GLOBL eight<>(SB), RODATA|NOPTR, $64

// KEPT sets in k which of the eight positions in at are not dropped. Overwrites Z6.
#define KEPT(at, x, k) \
	VPSRLQ $30, at, x; VPXORQ at, x, x; VPMULLQ Z10, x, x; \
	VPSRLQ $27, x, Z6; VPXORQ Z6, x, x; VPMULLQ Z11, x, x; \
	VPSRLQ $31, x, Z6; VPXORQ Z6, x, x; VPSRLQ $40, x, x; \
	VPCMPUQ $5, Z12, x, k

// Z0 and Z1 hold the positions of 16 numbers, Z2 the distance to the next 16.
#define DROP_OF(LOAD, STORE) \
	KEPT(Z0, Z4, K2); KEPT(Z1, Z5, K3); KUNPCKBW K2, K3, K2; \
	VMOVAPS.Z Z13, K2, Z6; LOAD((SI)(BX*1), Z7); VMULPS Z6, Z7, Z7; STORE(Z7, (DI)(BX*1)); \
	VPADDQ Z2, Z0, Z0; VPADDQ Z2, Z1, Z1

// func dropAVX512(dst, x []float32, s dropScalars)
TEXT ·dropAVX512(SB), NOSPLIT, $0-80
	MOVQ dst_base+0(FP), DI
	MOVQ dst_len+8(FP), CX
	MOVQ x_base+24(FP), SI
	XORQ BX, BX
	VPBROADCASTQ s+48+dropScalars_at(FP), Z0
	VPBROADCASTQ s+48+dropScalars_stride(FP), Z2
	VPBROADCASTQ s+48+dropScalars_below(FP), Z12
	VBROADCASTSS s+48+dropScalars_keep(FP), Z13
	VPBROADCASTQ splitmix<>+8(SB), Z10
	VPBROADCASTQ splitmix<>+16(SB), Z11
	VPADDQ.BCST splitmix<>+0(SB), Z0, Z0
	VMOVDQU64 eight<>+0(SB), Z3
	VPMULLQ Z2, Z3, Z3
	VPADDQ Z3, Z0, Z0
	VPSLLQ $3, Z2, Z3
	VPADDQ Z3, Z0, Z1
	VPSLLQ $4, Z2, Z2
	EACH(DROP_OF(LOADF, STOREF), DROP_OF(LOADT, STORET))
	VZEROUPPER
	RET

// The factors of op.Line.
DATA line<>+0(SB)/4, $0x7feb352d
DATA line<>+4(SB)/4, $0x846ca68b
DATA line<>+8(SB)/4, $0x80000000
GLOBL line<>(SB), RODATA|NOPTR, $12

// func dropLineAVX2(x []float32, w *lineWords, s lineScalars)
// Comparisons are of signed numbers: both sides have their highest bit turned.
TEXT ·dropLineAVX2(SB), NOSPLIT, $0-44
	MOVQ x_base+0(FP), DI
	MOVQ x_len+8(FP), CX
	MOVQ w+24(FP), SI
	VPBROADCASTD s+32+lineScalars_at(FP), Y0
	VPBROADCASTD s+32+lineScalars_below(FP), Y1
	VBROADCASTSS s+32+lineScalars_keep(FP), Y2
	VPBROADCASTD line<>+0(SB), Y3
	VPBROADCASTD line<>+4(SB), Y4
	VPBROADCASTD line<>+8(SB), Y7
	VPXOR Y7, Y1, Y1
	TESTQ CX, CX
	JZ done
loop:
	VPADDD lineWords_starts(SI), Y0, Y5
	VPSRLD $16, Y5, Y6
	VPXOR Y6, Y5, Y5
	VPMULLD Y3, Y5, Y5
	VPADDD lineWords_turns(SI), Y5, Y5
	VPSRLD $15, Y5, Y6
	VPXOR Y6, Y5, Y5
	VPMULLD Y4, Y5, Y5
	VPXOR Y7, Y5, Y5
	VPCMPGTD Y5, Y1, Y5 // what is dropped
	VANDNPS Y2, Y5, Y6
	VMULPS (DI), Y6, Y6
	VMOVUPS Y6, (DI)
	ADDQ $32, DI
	ADDQ $32, SI
	SUBQ $8, CX
	JNZ loop
done:
	VZEROUPPER
	RET

// func roundStatesAVX512(dst []uint16, src []float32, at uint64)
// Z0 holds eight counters. Each gives 64 random bits: 16 for each of four elements.
TEXT ·roundStatesAVX512(SB), NOSPLIT, $0-56
	MOVQ dst_base+0(FP), DI
	MOVQ src_base+24(FP), SI
	MOVQ src_len+32(FP), CX
	VPBROADCASTQ at+48(FP), Z0
	VPADDQ.BCST splitmix<>+0(SB), Z0, Z0
	VPADDQ eight<>+0(SB), Z0, Z0
	VPBROADCASTQ splitmix<>+8(SB), Z10
	VPBROADCASTQ splitmix<>+16(SB), Z11
	MOVQ $8, AX
	VPBROADCASTQ AX, Z2
	MOVL $0x400000, AX
	VPBROADCASTD AX, Z9 // the bit of a quiet NaN
	TESTQ CX, CX
	JZ done
loop:
	VPSRLQ $30, Z0, Z4
	VPXORQ Z0, Z4, Z4
	VPMULLQ Z10, Z4, Z4
	VPSRLQ $27, Z4, Z5
	VPXORQ Z5, Z4, Z4
	VPMULLQ Z11, Z4, Z4
	VPSRLQ $31, Z4, Z5
	VPXORQ Z5, Z4, Z4
	VPMOVZXWD Y4, Z5
	VEXTRACTI64X4 $1, Z4, Y4
	VPMOVZXWD Y4, Z6
	VMOVUPS (SI), Z7
	VMOVUPS 64(SI), Z8
	VPADDD Z7, Z5, Z5
	VPADDD Z8, Z6, Z6
	VCMPPS $3, Z7, Z7, K2
	VCMPPS $3, Z8, Z8, K3
	VPORD Z9, Z7, K2, Z5
	VPORD Z9, Z8, K3, Z6
	VPSRLD $16, Z5, Z5
	VPSRLD $16, Z6, Z6
	VPMOVDW Z5, (DI)
	VPMOVDW Z6, 32(DI)
	VPADDQ Z2, Z0, Z0
	ADDQ $128, SI
	ADDQ $64, DI
	SUBQ $32, CX
	JNZ loop
done:
	VZEROUPPER
	RET

// PRODUCT multiplies x by a constant modulo 2^64; the upper half of the constant is in
// high; AVX2 multiplies 32 bits only. Overwrites Y6 and Y7.
#define PRODUCT(constant, high, x) \
	VPMULUDQ constant, x, Y6; VPSRLQ $32, x, Y7; VPMULUDQ constant, Y7, Y7; VPMULUDQ high, x, x; \
	VPADDQ x, Y7, Y7; VPSLLQ $32, Y7, Y7; VPADDQ Y6, Y7, x

// func roundStatesAVX2(dst []uint16, src []float32, at uint64)
// The same with four counters in Y0.
TEXT ·roundStatesAVX2(SB), NOSPLIT, $0-56
	MOVQ dst_base+0(FP), DI
	MOVQ src_base+24(FP), SI
	MOVQ src_len+32(FP), CX
	VPBROADCASTQ at+48(FP), Y0
	VPBROADCASTQ splitmix<>+0(SB), Y1
	VPADDQ Y1, Y0, Y0
	VPADDQ eight<>+0(SB), Y0, Y0
	VPBROADCASTQ splitmix<>+8(SB), Y10
	VPBROADCASTQ splitmix<>+16(SB), Y11
	VPSRLQ $32, Y10, Y12
	VPSRLQ $32, Y11, Y13
	VPBROADCASTQ eight<>+32(SB), Y2
	MOVL $0x400000, AX
	VMOVQ AX, X9
	VPBROADCASTD X9, Y9
	VPXOR Y1, Y1, Y1
	TESTQ CX, CX
	JZ done
loop:
	VPSRLQ $30, Y0, Y4
	VPXOR Y0, Y4, Y4
	PRODUCT(Y10, Y12, Y4)
	VPSRLQ $27, Y4, Y5
	VPXOR Y5, Y4, Y4
	PRODUCT(Y11, Y13, Y4)
	VPSRLQ $31, Y4, Y5
	VPXOR Y5, Y4, Y4
	VPUNPCKLWD Y1, Y4, Y5 // of elements 0 to 3 and 8 to 11
	VPUNPCKHWD Y1, Y4, Y6 // of 4 to 7 and 12 to 15
	VMOVUPS (SI), X7
	VINSERTF128 $1, 32(SI), Y7, Y7
	VMOVUPS 16(SI), X8
	VINSERTF128 $1, 48(SI), Y8, Y8
	VPADDD Y7, Y5, Y5
	VPADDD Y8, Y6, Y6
	VCMPPS $3, Y7, Y8, Y14
	VMOVMSKPS Y14, AX
	TESTL AX, AX
	JZ numbers
	VCMPPS $3, Y7, Y7, Y14
	VCMPPS $3, Y8, Y8, Y15
	VPOR Y9, Y7, Y7
	VPOR Y9, Y8, Y8
	VBLENDVPS Y14, Y7, Y5, Y5
	VBLENDVPS Y15, Y8, Y6, Y6
numbers:
	VPSRLD $16, Y5, Y5
	VPSRLD $16, Y6, Y6
	VPACKUSDW Y6, Y5, Y5
	VMOVDQU Y5, (DI)
	VPADDQ Y2, Y0, Y0
	ADDQ $64, SI
	ADDQ $32, DI
	SUBQ $16, CX
	JNZ loop
done:
	VZEROUPPER
	RET

// func roundWeightsAVX512(dst []uint16, src []float32, at uint64)
// Z0 and Z1 hold the counters of 16 elements; the highest 16 bits of each number are used.
TEXT ·roundWeightsAVX512(SB), NOSPLIT, $0-56
	MOVQ dst_base+0(FP), DI
	MOVQ src_base+24(FP), SI
	MOVQ src_len+32(FP), CX
	VPBROADCASTQ at+48(FP), Z0
	VPADDQ.BCST splitmix<>+0(SB), Z0, Z0
	VPADDQ eight<>+0(SB), Z0, Z0
	VPBROADCASTQ splitmix<>+8(SB), Z10
	VPBROADCASTQ splitmix<>+16(SB), Z11
	MOVQ $8, AX
	VPBROADCASTQ AX, Z2
	VPADDQ Z2, Z0, Z1
	VPADDQ Z2, Z2, Z2
	MOVL $0x400000, AX
	VPBROADCASTD AX, Z9 // the bit of a quiet NaN
	TESTQ CX, CX
	JZ done
loop:
	VPSRLQ $30, Z0, Z4
	VPSRLQ $30, Z1, Z5
	VPXORQ Z0, Z4, Z4
	VPXORQ Z1, Z5, Z5
	VPMULLQ Z10, Z4, Z4
	VPMULLQ Z10, Z5, Z5
	VPSRLQ $27, Z4, Z6
	VPSRLQ $27, Z5, Z7
	VPXORQ Z6, Z4, Z4
	VPXORQ Z7, Z5, Z5
	VPMULLQ Z11, Z4, Z4
	VPMULLQ Z11, Z5, Z5
	VPSRLQ $31, Z4, Z6
	VPSRLQ $31, Z5, Z7
	VPXORQ Z6, Z4, Z4
	VPXORQ Z7, Z5, Z5
	VPSRLQ $48, Z4, Z4
	VPSRLQ $48, Z5, Z5
	VPMOVQD Z4, Y4
	VPMOVQD Z5, Y5
	VINSERTI64X4 $1, Y5, Z4, Z4
	VMOVUPS (SI), Z7
	VPADDD Z7, Z4, Z4
	VCMPPS $3, Z7, Z7, K2
	VPORD Z9, Z7, K2, Z4
	VPSRLD $16, Z4, Z4
	VPMOVDW Z4, (DI)
	VPADDQ Z2, Z0, Z0
	VPADDQ Z2, Z1, Z1
	ADDQ $64, SI
	ADDQ $32, DI
	SUBQ $16, CX
	JNZ loop
done:
	VZEROUPPER
	RET

DATA inTurns<>+0(SB)/8, $0
DATA inTurns<>+8(SB)/8, $1
DATA inTurns<>+16(SB)/8, $4
DATA inTurns<>+24(SB)/8, $5
DATA inTurns<>+32(SB)/8, $2
DATA inTurns<>+40(SB)/8, $3
DATA inTurns<>+48(SB)/8, $6
DATA inTurns<>+56(SB)/8, $7
GLOBL inTurns<>(SB), RODATA|NOPTR, $64

// MIX leaves the random numbers of the counters in at in x. Overwrites Y6 and Y7.
#define MIX(at, x) \
	VPSRLQ $30, at, x; VPXOR at, x, x; PRODUCT(Y10, Y12, x); \
	VPSRLQ $27, x, Y6; VPXOR Y6, x, x; PRODUCT(Y11, Y13, x); \
	VPSRLQ $31, x, Y6; VPXOR Y6, x, x

// func roundWeightsAVX2(dst []uint16, src []float32, at uint64)
// The same with eight elements: 0, 1, 4, 5 in Y0 and 2, 3, 6, 7 in Y1, which is how halves of
// both come together in order.
TEXT ·roundWeightsAVX2(SB), NOSPLIT, $0-56
	MOVQ dst_base+0(FP), DI
	MOVQ src_base+24(FP), SI
	MOVQ src_len+32(FP), CX
	VPBROADCASTQ at+48(FP), Y0
	VPBROADCASTQ splitmix<>+0(SB), Y1
	VPADDQ Y1, Y0, Y0
	VPADDQ inTurns<>+32(SB), Y0, Y1
	VPADDQ inTurns<>+0(SB), Y0, Y0
	VPBROADCASTQ splitmix<>+8(SB), Y10
	VPBROADCASTQ splitmix<>+16(SB), Y11
	VPSRLQ $32, Y10, Y12
	VPSRLQ $32, Y11, Y13
	MOVL $8, AX
	VMOVQ AX, X2
	VPBROADCASTQ X2, Y2
	MOVL $0x400000, AX
	VMOVQ AX, X9
	VPBROADCASTD X9, Y9
	TESTQ CX, CX
	JZ done
loop:
	MIX(Y0, Y4)
	MIX(Y1, Y5)
	VPSRLQ $48, Y4, Y4
	VPSRLQ $48, Y5, Y5
	VSHUFPS $0x88, Y5, Y4, Y4
	VMOVUPS (SI), Y7
	VPADDD Y7, Y4, Y4
	VCMPPS $3, Y7, Y7, Y14
	VMOVMSKPS Y14, AX
	TESTL AX, AX
	JZ numbers
	VPOR Y9, Y7, Y7
	VBLENDVPS Y14, Y7, Y4, Y4
numbers:
	VPSRLD $16, Y4, Y4
	VEXTRACTI128 $1, Y4, X5
	VPACKUSDW X5, X4, X4
	VMOVDQU X4, (DI)
	VPADDQ Y2, Y0, Y0
	VPADDQ Y2, Y1, Y1
	ADDQ $32, SI
	ADDQ $16, DI
	SUBQ $8, CX
	JNZ loop
done:
	VZEROUPPER
	RET
