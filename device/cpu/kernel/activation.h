// Activations. f_VALUE computes V1 = f(V0); f_BOTH computes V2 = f'(V0) as well. Both leave V0
// as it is and may overwrite V3 to V7. The four loops below are written once for all f.

#define RELU_VALUE VXORPS V3, V3, V3; VMAXPS V0, V3, V1
#define RELU_BOTH RELU_VALUE; VXORPS V2, V2, V2; CONST(ONE, V4); LESS(V3, V0); CHOOSE(V4, V2)

#define SIGMOID_VALUE VMOVAPS V0, V3; SIGMOID(V3, V1, V4, V5)
// f' = f·(1 - f)
#define SIGMOID_BOTH SIGMOID_VALUE; VMOVAPS V1, V2; VFNMADD213PS V1, V1, V2

#define SILU_VALUE SIGMOID_VALUE; VMULPS V0, V1, V1
// f' = s + x·s·(1 - s), s being the sigmoid
#define SILU_BOTH SIGMOID_BOTH; VFMADD213PS V1, V0, V2; VMULPS V0, V1, V1

#define TANH_VALUE TANH(V0, V1, V3, V4, V5, V6)
// f' = 1 - f²
#define TANH_BOTH TANH_VALUE; CONST(ONE, V2); VFNMADD231PS V1, V1, V2

// V3 = Φ(x) = (1 + erf(x/√2))/2
#define NORMAL_CDF \
	MULC(·c+constants_sqrtHalf(SB), V0, V2); \
	ERF(V2, V3, V4, V5, V6, V7); \
	CONST(HALF, V4); \
	VFMADD213PS V4, V4, V3
#define GELU_VALUE NORMAL_CDF; VMULPS V0, V3, V1
// f' = Φ(x) + x·e^(-x²/2)/√(2π)
#define GELU_BOTH \
	GELU_VALUE; \
	VMULPS V0, V0, V4; \
	MULC(·c+constants_minusHalf(SB), V4, V4); \
	EXP(V4, V2, V5); \
	MULC(·c+constants_density(SB), V2, V2); \
	VFMADD213PS V3, V0, V2

// V2 = s = sigmoid(g1·x + g3·x³), V1 = x·s; V7 = x²
#define GELU_TANH_VALUE \
	VMULPS V0, V0, V7; \
	CONST(·c+constants_g3(SB), V3); \
	MULADDC(·c+constants_g1(SB), V7, V3); \
	VMULPS V0, V3, V3; \
	SIGMOID(V3, V2, V4, V5); \
	VMULPS V0, V2, V1
// f' = s + x·s·(1 - s)·(g1 + 3·g3·x²)
#define GELU_TANH_BOTH \
	GELU_TANH_VALUE; \
	CONST(·c+constants_g3x3(SB), V3); \
	MULADDC(·c+constants_g1(SB), V7, V3); \
	CONST(ONE, V4); \
	VSUBPS V2, V4, V4; \
	VMULPS V1, V4, V4; \
	VFMADD231PS V3, V4, V2

// func(dst, x []float32): dst = f(x)
#define VALUE_LOOP(F) \
	MOVQ dst_base+0(FP), DI; MOVQ dst_len+8(FP), CX; MOVQ x_base+24(FP), SI; XORQ BX, BX; \
	EACH(VALUE_OF(F, LOADF, STOREF), VALUE_OF(F, LOADT, STORET)); \
	VZEROUPPER; RET
#define VALUE_OF(F, LOAD, STORE) LOAD((SI)(BX*1), V0); F; STORE(V1, (DI)(BX*1))

// func(dst, x, y []float32): dst = y·f(x), or y·f'(x): F leaves the factor in OUT
#define TIMES_LOOP(F, OUT) \
	MOVQ dst_base+0(FP), DI; MOVQ dst_len+8(FP), CX; MOVQ x_base+24(FP), SI; MOVQ y_base+48(FP), DX; XORQ BX, BX; \
	EACH(TIMES_OF(F, OUT, LOADF, STOREF), TIMES_OF(F, OUT, LOADT, STORET)); \
	VZEROUPPER; RET
#define TIMES_OF(F, OUT, LOAD, STORE) \
	LOAD((SI)(BX*1), V0); F; LOAD((DX)(BX*1), V8); \
	VMULPS V8, OUT, OUT; STORE(OUT, (DI)(BX*1))

// func(dgate, dup, gate, up, dy []float32): the gradients of f(gate)·up
#define GATED_GRAD_LOOP(F) \
	MOVQ dgate_base+0(FP), DI; MOVQ dgate_len+8(FP), CX; MOVQ dup_base+24(FP), R8; \
	MOVQ gate_base+48(FP), SI; MOVQ up_base+72(FP), DX; MOVQ dy_base+96(FP), R9; XORQ BX, BX; \
	EACH(GATED_OF(F, LOADF, STOREF), GATED_OF(F, LOADT, STORET)); \
	VZEROUPPER; RET
#define GATED_OF(F, LOAD, STORE) \
	LOAD((SI)(BX*1), V0); F; LOAD((DX)(BX*1), V8); LOAD((R9)(BX*1), V9); \
	VMULPS V9, V1, V1; VMULPS V9, V2, V2; VMULPS V8, V2, V2; \
	STORE(V2, (DI)(BX*1)); STORE(V1, (R8)(BX*1))

#define EXP_VALUE VMOVAPS V0, V3; EXP(V3, V1, V4)
