#include "textflag.h"

// Values of 8-bit dynamic codes, gathered from their map, whole vectors of 16.

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
