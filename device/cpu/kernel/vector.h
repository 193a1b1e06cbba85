// Elementwise arithmetic, sums, norms and rotation: a macro per loop, written in the macros of
// lanes_*.h. DI points to what is written; SI, DX, R8 and R9 to what is read.

// func(dst, x, y []float32)
#define BINARY_LOOP(OF) \
	MOVQ dst_base+0(FP), DI; MOVQ dst_len+8(FP), CX; MOVQ x_base+24(FP), SI; MOVQ y_base+48(FP), DX; XORQ BX, BX; \
	EACH(OF(LOADF, STOREF), OF(LOADT, STORET)); \
	VZEROUPPER; RET
#define ADD_OF(LOAD, STORE) LOAD((SI)(BX*1), V0); LOAD((DX)(BX*1), V1); VADDPS V1, V0, V0; STORE(V0, (DI)(BX*1))
#define MUL_OF(LOAD, STORE) LOAD((SI)(BX*1), V0); LOAD((DX)(BX*1), V1); VMULPS V1, V0, V0; STORE(V0, (DI)(BX*1))
#define ADD_MUL_OF(LOAD, STORE) LOAD((SI)(BX*1), V0); LOAD((DX)(BX*1), V1); LOAD((DI)(BX*1), V2); VFMADD231PS V1, V0, V2; STORE(V2, (DI)(BX*1))

// func(dst, x []float32, s float32)
#define SCALED_LOOP(OF) \
	MOVQ dst_base+0(FP), DI; MOVQ dst_len+8(FP), CX; MOVQ x_base+24(FP), SI; CONST(s+48(FP), V4); XORQ BX, BX; \
	EACH(OF(LOADF, STOREF), OF(LOADT, STORET)); \
	VZEROUPPER; RET
#define SCALE_OF(LOAD, STORE) LOAD((SI)(BX*1), V0); VMULPS V4, V0, V0; STORE(V0, (DI)(BX*1))
#define ADD_SCALED_OF(LOAD, STORE) LOAD((SI)(BX*1), V0); LOAD((DI)(BX*1), V1); VFMADD231PS V4, V0, V1; STORE(V1, (DI)(BX*1))

// Sums. OF adds one vector at offset o to an accumulator; four of them hide the
// latency of the addition, and are added up two by two at the end.
#define SUM_LOOP(OF, PART) \
	VXORPS V0, V0, V0; VXORPS V1, V1, V1; VXORPS V2, V2, V2; VXORPS V3, V3, V3; XORQ BX, BX; \
	SUBQ $(4*LANES), CX; JLT four; \
	PCALIGN $32; \
wide: \
	OF(LOADF, 0, V0); OF(LOADF, BYTES, V1); OF(LOADF, (2*BYTES), V2); OF(LOADF, (3*BYTES), V3); \
	ADDQ $(4*BYTES), BX; SUBQ $(4*LANES), CX; JGE wide; \
four: \
	ADDQ $(4*LANES), CX; \
	VADDPS V1, V0, V0; VADDPS V3, V2, V2; VADDPS V2, V0, V0; \
	EACH(OF(LOADF, 0, V0), PART)
#define SUM_OF(LOAD, o, acc) LOAD(o(SI)(BX*1), V4); VADDPS V4, acc, acc
#define DOT_OF(LOAD, o, acc) LOAD(o(SI)(BX*1), V4); LOAD(o(DX)(BX*1), V5); VFMADD231PS V5, V4, acc
// Σ x·y·(z - shift), the shift in V7
#define DOT3_OF(LOAD, o, acc) \
	LOAD(o(R8)(BX*1), V6); VSUBPS V7, V6, V6; \
	LOAD(o(SI)(BX*1), V4); LOAD(o(DX)(BX*1), V5); VMULPS V5, V4, V4; VFMADD231PS V6, V4, acc
// Σ (x - mean)², the mean in V7; lanes that do not exist hold the mean
#define SPREAD_OF(LOAD, o, acc) LOAD(o(SI)(BX*1), V4); VSUBPS V7, V4, V4; VFMADD231PS V4, V4, acc
#define SPREAD_PART LOADT((SI)(BX*1), V4); VMOVAPS V7, V5; MERGET(V4, V5); VSUBPS V7, V5, V5; VFMADD231PS V5, V5, V0

// func(x []float32) float32
#define SUM_BODY MOVQ x_base+0(FP), SI; MOVQ x_len+8(FP), CX; SUM_LOOP(SUM_OF, SUM_OF(LOADT, 0, V0)); SUM_LANES; VZEROUPPER; MOVSS X0, ret+24(FP); RET
// func(x, y []float32) float32
#define DOT_BODY MOVQ x_base+0(FP), SI; MOVQ x_len+8(FP), CX; MOVQ y_base+24(FP), DX; SUM_LOOP(DOT_OF, DOT_OF(LOADT, 0, V0)); SUM_LANES; VZEROUPPER; MOVSS X0, ret+48(FP); RET
// func(x, y, z []float32, shift float32) float32
#define DOT3_BODY \
	MOVQ x_base+0(FP), SI; MOVQ x_len+8(FP), CX; MOVQ y_base+24(FP), DX; MOVQ z_base+48(FP), R8; CONST(shift+72(FP), V7); \
	SUM_LOOP(DOT3_OF, DOT3_OF(LOADT, 0, V0)); SUM_LANES; VZEROUPPER; MOVSS X0, ret+80(FP); RET

// func(x []float32, mean float32) float32
#define SPREAD_BODY \
	MOVQ x_base+0(FP), SI; MOVQ x_len+8(FP), CX; CONST(mean+24(FP), V7); \
	SUM_LOOP(SPREAD_OF, SPREAD_PART); SUM_LANES; VZEROUPPER; MOVSS X0, ret+32(FP); RET

// func(x []float32) float32: the largest element
#define MAX_BODY \
	MOVQ x_base+0(FP), SI; MOVQ x_len+8(FP), CX; XORQ BX, BX; \
	CONST(·c+constants_minusInf(SB), V0); \
	EACH(MAX_FULL, MAX_PART); \
	MAX_LANES; VZEROUPPER; MOVSS X0, ret+24(FP); RET
#define MAX_FULL VMAXPS (SI)(BX*1), V0, V0
#define MAX_PART LOADT((SI)(BX*1), V1); VMAXPS V1, V0, V1; MERGET(V1, V0)

// func(dst, x []float32, shift float32) float32: dst = e^(x - shift), and its sum
#define EXP_SUM_BODY \
	MOVQ dst_base+0(FP), DI; MOVQ dst_len+8(FP), CX; MOVQ x_base+24(FP), SI; CONST(shift+48(FP), V7); VXORPS V0, V0, V0; XORQ BX, BX; \
	EACH(EXP_SUM_FULL, EXP_SUM_PART); \
	SUM_LANES; VZEROUPPER; MOVSS X0, ret+56(FP); RET
#define EXP_SUM_FULL VMOVUPS (SI)(BX*1), V3; VSUBPS V7, V3, V3; EXP(V3, V1, V4); VADDPS V1, V0, V0; VMOVUPS V1, (DI)(BX*1)
#define EXP_SUM_PART LOADT((SI)(BX*1), V3); VSUBPS V7, V3, V3; EXP(V3, V1, V4); STORET(V1, (DI)(BX*1)); VADDPS V1, V0, V1; MERGET(V1, V0)

// func(x []float32) float64: the sum of squares in double precision. The length is a
// multiple of LANES.
#define SQUARES_BODY \
	MOVQ x_base+0(FP), SI; MOVQ x_len+8(FP), CX; \
	VXORPS V0, V0, V0; VXORPS V1, V1, V1; \
	SUBQ $LANES, CX; JLT done; \
loop: \
	VCVTPS2PD (SI), V2; VCVTPS2PD WIDE_BYTES(SI), V3; \
	VFMADD231PD V2, V2, V0; VFMADD231PD V3, V3, V1; \
	ADDQ $BYTES, SI; SUBQ $LANES, CX; JGE loop; \
done: \
	VADDPD V1, V0, V0; SUM_DOUBLES; VZEROUPPER; MOVSD X0, ret+24(FP); RET

// func(dst, x, w []float32, scale, shift float32): dst = (x·scale + shift)·w
#define NORM_BODY \
	MOVQ dst_base+0(FP), DI; MOVQ dst_len+8(FP), CX; MOVQ x_base+24(FP), SI; MOVQ w_base+48(FP), DX; \
	CONST(scale+72(FP), V4); CONST(shift+76(FP), V5); XORQ BX, BX; \
	EACH(NORM_OF(LOADF, STOREF), NORM_OF(LOADT, STORET)); \
	VZEROUPPER; RET
#define NORM_OF(LOAD, STORE) LOAD((SI)(BX*1), V0); LOAD((DX)(BX*1), V1); VFMADD213PS V5, V4, V0; VMULPS V1, V0, V0; STORE(V0, (DI)(BX*1))

// func(dx, x, w, dy []float32, a, b, c float32): dx = a·dy·w + b·x + c
#define NORM_GRAD_BODY \
	MOVQ dx_base+0(FP), DI; MOVQ dx_len+8(FP), CX; MOVQ x_base+24(FP), SI; MOVQ w_base+48(FP), DX; MOVQ dy_base+72(FP), R8; \
	CONST(a+96(FP), V4); CONST(b+100(FP), V5); CONST(c+104(FP), V6); XORQ BX, BX; \
	EACH(NORM_GRAD_OF(LOADF, STOREF), NORM_GRAD_OF(LOADT, STORET)); \
	VZEROUPPER; RET
#define NORM_GRAD_OF(LOAD, STORE) \
	LOAD((SI)(BX*1), V0); LOAD((DX)(BX*1), V1); LOAD((R8)(BX*1), V2); \
	VFMADD213PS V6, V5, V0; VMULPS V1, V2, V2; VFMADD231PS V4, V2, V0; STORE(V0, (DI)(BX*1))

// func(dw, x, dy []float32, scale, shift float32): dw += dy·(x·scale + shift)
#define NORM_WEIGHT_BODY \
	MOVQ dw_base+0(FP), DI; MOVQ dw_len+8(FP), CX; MOVQ x_base+24(FP), SI; MOVQ dy_base+48(FP), DX; \
	CONST(scale+72(FP), V4); CONST(shift+76(FP), V5); XORQ BX, BX; \
	EACH(NORM_WEIGHT_OF(LOADF, STOREF), NORM_WEIGHT_OF(LOADT, STORET)); \
	VZEROUPPER; RET
#define NORM_WEIGHT_OF(LOAD, STORE) \
	LOAD((SI)(BX*1), V0); LOAD((DX)(BX*1), V1); LOAD((DI)(BX*1), V2); \
	VFMADD213PS V5, V4, V0; VFMADD231PS V1, V0, V2; STORE(V2, (DI)(BX*1))

// func(y, x, cos, sin []float32, heads, width int): of each head lo = x·cos - y·sin, hi = y·cos + x·sin
#define ROTATE_BODY \
	MOVQ y_base+0(FP), DI; MOVQ x_base+24(FP), SI; MOVQ cos_base+48(FP), R8; MOVQ cos_len+56(FP), R11; MOVQ sin_base+72(FP), R10; \
	MOVQ heads+96(FP), R12; MOVQ width+104(FP), R13; SHLQ $2, R13; \
	LEAQ (DI)(R11*4), R9; LEAQ (SI)(R11*4), DX; \
head: \
	MOVQ R11, CX; XORQ BX, BX; \
	EACH(ROTATE_OF(LOADF, STOREF), ROTATE_OF(LOADT, STORET)); \
	ADDQ R13, DI; ADDQ R13, SI; ADDQ R13, R9; ADDQ R13, DX; DECQ R12; JNZ head; \
	VZEROUPPER; RET
#define ROTATE_OF(LOAD, STORE) \
	LOAD((SI)(BX*1), V0); LOAD((DX)(BX*1), V1); LOAD((R8)(BX*1), V2); LOAD((R10)(BX*1), V3); \
	VMULPS V2, V0, V4; VFNMADD231PS V3, V1, V4; \
	VMULPS V2, V1, V5; VFMADD231PS V3, V0, V5; \
	STORE(V4, (DI)(BX*1)); STORE(V5, (R9)(BX*1))

// func(cos, sin, freq []float32, position float32, cosTimes, sinTimes float64): of the angles position·freq, a product of
// floats, in double precision. The length is a multiple of LANES. An angle is brought to ±π/2 by n half turns, where few
// terms of both series are enough; an odd n changes both signs.
#define ANGLES_BODY \
	MOVQ cos_base+0(FP), DI; MOVQ cos_len+8(FP), CX; MOVQ sin_base+24(FP), R9; MOVQ freq_base+48(FP), SI; \
	CONST(position+72(FP), V9); CONSTD(cosTimes+80(FP), V10); CONSTD(sinTimes+88(FP), V11); \
	SUBQ $(LANES/2), CX; JLT done; \
loop: \
	VMOVUPS (SI), HALF_PS; VMULPS V9, V0, V0; VCVTPS2PD HALF_PS, V0; \
	MULD(·turns+turnConstants_perPi(SB), V0, V1); ROUNDD(V1, V1); \
	SUBMULD(·turns+turnConstants_piHi(SB), V1, V0); SUBMULD(·turns+turnConstants_piLo(SB), V1, V0); \
	VMULPD V0, V0, V2; \
	CONSTD(·turns+turnConstants_s8(SB), V3); MULADDD(·turns+turnConstants_s7(SB), V2, V3); \
	MULADDD(·turns+turnConstants_s6(SB), V2, V3); MULADDD(·turns+turnConstants_s5(SB), V2, V3); \
	MULADDD(·turns+turnConstants_s4(SB), V2, V3); MULADDD(·turns+turnConstants_s3(SB), V2, V3); \
	MULADDD(·turns+turnConstants_s2(SB), V2, V3); MULADDD(·turns+turnConstants_s1(SB), V2, V3); \
	MULADDD(·turns+turnConstants_one(SB), V2, V3); VMULPD V0, V3, V3; \
	CONSTD(·turns+turnConstants_c9(SB), V4); MULADDD(·turns+turnConstants_c8(SB), V2, V4); \
	MULADDD(·turns+turnConstants_c7(SB), V2, V4); MULADDD(·turns+turnConstants_c6(SB), V2, V4); \
	MULADDD(·turns+turnConstants_c5(SB), V2, V4); MULADDD(·turns+turnConstants_c4(SB), V2, V4); \
	MULADDD(·turns+turnConstants_c3(SB), V2, V4); MULADDD(·turns+turnConstants_c2(SB), V2, V4); \
	MULADDD(·turns+turnConstants_c1(SB), V2, V4); MULADDD(·turns+turnConstants_one(SB), V2, V4); \
	MULD(·turns+turnConstants_half(SB), V1, V5); FLOORD(V5, V5); VADDPD V5, V5, V5; VSUBPD V5, V1, V1; VADDPD V1, V1, V1; \
	VMULPD V10, V4, V4; VFNMADD231PD V1, V4, V4; VMULPD V11, V3, V3; VFNMADD231PD V1, V3, V3; \
	NARROWD(V4, (DI)); NARROWD(V3, (R9)); \
	ADDQ $WIDE_BYTES, SI; ADDQ $WIDE_BYTES, DI; ADDQ $WIDE_BYTES, R9; SUBQ $(LANES/2), CX; JGE loop; \
done: \
	VZEROUPPER; RET
