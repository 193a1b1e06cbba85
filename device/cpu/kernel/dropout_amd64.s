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
