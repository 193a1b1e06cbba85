// Optimizer updates: every byte is read once and written once. What is rounded when is as
// in the plain functions (adamGo and the like), bit for bit.

// AHEAD prefetches what comes 7 cache lines later. A CPU prefetches by itself where memory is
// read in order, but only up to the end of each page of 4 KiB; with four tensors read at once
// that end comes often. On a core of Zen 4 Adam moved 40 GB/s with 9 or more lines, 43 without
// prefetching, and 49 with 6 to 8 lines; FLUSH_BOTH makes that 53. A loop that does nothing but
// load and store the same bytes moves 54.
#define AHEAD(of) PREFETCHT0 448(of)(BX*1)

// func(w, g, m, v []float32, s Adam)
//
//	g = clip·g + couple·w            m = beta1·m + (1-beta1)·g
//	v = beta2·v + (1-beta2)·g²       w = shrink·w - rate·m/(√v·root + eps)
#define ADAM_BODY \
	MOVQ w_base+0(FP), DI; MOVQ w_len+8(FP), CX; MOVQ g_base+24(FP), SI; MOVQ m_base+48(FP), DX; MOVQ v_base+72(FP), R8; XORQ BX, BX; \
	CONST(s+96+Adam_beta1(FP), V4); CONST(s+96+Adam_beta2(FP), V5); CONST(s+96+Adam_eps(FP), V6); CONST(s+96+Adam_root(FP), V7); \
	CONST(s+96+Adam_rate(FP), V8); CONST(s+96+Adam_shrink(FP), V9); CONST(s+96+Adam_clip(FP), V10); CONST(s+96+Adam_couple(FP), V11); CONST(s+96+Adam_rest2(FP), V14); \
	EACH(AHEAD(DI); AHEAD(SI); AHEAD(DX); AHEAD(R8); ADAM_OF(LOADF, STOREF, full), ADAM_OF(LOADT, STORET, part)); \
	VZEROUPPER; RET
#define ADAM_OF(LOAD, STORE, normal) \
	LOAD((DI)(BX*1), V0); LOAD((SI)(BX*1), V1); \
	VMULPS V10, V1, V1; VFMADD231PS V11, V0, V1; \
	LOAD((DX)(BX*1), V2); MULC(s+96+Adam_rest1(FP), V1, V3); VFMADD213PS V3, V4, V2; \
	VMULPS V1, V1, V1; \
	LOAD((R8)(BX*1), V3); VMULPS V14, V1, V1; VFMADD213PS V1, V5, V3; \
	FLUSH_BOTH(s+96+Adam_unlessM(FP), V2, s+96+Adam_unlessV(FP), V3, V1, normal); STORE(V2, (DX)(BX*1)); STORE(V3, (R8)(BX*1)); \
	VSQRTPS V3, V3; VFMADD213PS V6, V7, V3; \
	VMULPS V8, V2, V2; VDIVPS V3, V2, V2; \
	VFMSUB213PS V2, V9, V0; STORE(V0, (DI)(BX*1))

// func(w, g, m []float32, s sgdScalars)
//
//	g = clip·g + decay·w     m = momentum·m + fresh·g     w = w - rate·(direct·g + through·m)
#define SGD_BODY \
	MOVQ w_base+0(FP), DI; MOVQ w_len+8(FP), CX; MOVQ g_base+24(FP), SI; MOVQ m_base+48(FP), DX; XORQ BX, BX; \
	EACH(AHEAD(DI); AHEAD(SI); AHEAD(DX); SGD_OF(LOADF, STOREF), SGD_OF(LOADT, STORET)); \
	VZEROUPPER; RET
#define SGD_OF(LOAD, STORE) \
	LOAD((DI)(BX*1), V0); LOAD((SI)(BX*1), V1); LOAD((DX)(BX*1), V2); \
	MULC(s+72+sgdScalars_clip(FP), V1, V1); ADDMULC(s+72+sgdScalars_decay(FP), V0, V1); \
	MULC(s+72+sgdScalars_momentum(FP), V2, V2); ADDMULC(s+72+sgdScalars_fresh(FP), V1, V2); FLUSH(s+72+sgdScalars_unless(FP), V2); STORE(V2, (DX)(BX*1)); \
	MULC(s+72+sgdScalars_through(FP), V2, V3); ADDMULC(s+72+sgdScalars_direct(FP), V1, V3); \
	SUBMULC(s+72+sgdScalars_rate(FP), V3, V0); STORE(V0, (DI)(BX*1))

// func(w, g []float32, s sgdScalars)
//
//	w = w - rate·(clip·g + decay·w)
#define SGD_BARE_BODY \
	MOVQ w_base+0(FP), DI; MOVQ w_len+8(FP), CX; MOVQ g_base+24(FP), SI; XORQ BX, BX; \
	EACH(AHEAD(DI); AHEAD(SI); SGD_BARE_OF(LOADF, STOREF), SGD_BARE_OF(LOADT, STORET)); \
	VZEROUPPER; RET
#define SGD_BARE_OF(LOAD, STORE) \
	LOAD((DI)(BX*1), V0); LOAD((SI)(BX*1), V1); \
	MULC(s+48+sgdScalars_clip(FP), V1, V1); ADDMULC(s+48+sgdScalars_decay(FP), V0, V1); \
	SUBMULC(s+48+sgdScalars_rate(FP), V1, V0); STORE(V0, (DI)(BX*1))

// func(w, g, m []float32, s Lion)
//
//	g = clip·g     w = shrink·w - rate·sign(beta1·m + rest1·g)     m = beta2·m + rest2·g
#define LION_BODY \
	MOVQ w_base+0(FP), DI; MOVQ w_len+8(FP), CX; MOVQ g_base+24(FP), SI; MOVQ m_base+48(FP), DX; XORQ BX, BX; \
	VXORPS V4, V4, V4; CONST(ONE, V5); VSUBPS V5, V4, V6; CONST(s+72+Lion_shrink(FP), V7); \
	EACH(AHEAD(DI); AHEAD(SI); AHEAD(DX); LION_OF(LOADF, STOREF), LION_OF(LOADT, STORET)); \
	VZEROUPPER; RET
#define LION_OF(LOAD, STORE) \
	LOAD((DI)(BX*1), V0); LOAD((SI)(BX*1), V1); LOAD((DX)(BX*1), V2); \
	MULC(s+72+Lion_clip(FP), V1, V1); \
	MULC(s+72+Lion_rest1(FP), V1, V3); ADDMULC(s+72+Lion_beta1(FP), V2, V3); \
	MULC(s+72+Lion_rest2(FP), V1, V1); ADDMULC(s+72+Lion_beta2(FP), V2, V1); FLUSH(s+72+Lion_unless(FP), V1); STORE(V1, (DX)(BX*1)); \
	VMOVAPS V3, V2; LESS(V4, V3); CHOOSE(V5, V2); LESS(V3, V4); CHOOSE(V6, V2); \
	MULC(s+72+Lion_rate(FP), V2, V2); VFMSUB213PS V2, V7, V0; STORE(V0, (DI)(BX*1))

// func(w, g, v []float32, s RMSprop)
//
//	g = clip·g + couple·w     v = alpha·v + rest·g²     w = w - rate·g/(√v + eps)
#define RMSPROP_BODY \
	MOVQ w_base+0(FP), DI; MOVQ w_len+8(FP), CX; MOVQ g_base+24(FP), SI; MOVQ v_base+48(FP), DX; XORQ BX, BX; \
	CONST(s+72+RMSprop_alpha(FP), V4); CONST(s+72+RMSprop_eps(FP), V6); \
	EACH(AHEAD(DI); AHEAD(SI); AHEAD(DX); RMSPROP_OF(LOADF, STOREF), RMSPROP_OF(LOADT, STORET)); \
	VZEROUPPER; RET
#define RMSPROP_OF(LOAD, STORE) \
	LOAD((DI)(BX*1), V0); LOAD((SI)(BX*1), V1); LOAD((DX)(BX*1), V2); \
	MULC(s+72+RMSprop_clip(FP), V1, V1); ADDMULC(s+72+RMSprop_couple(FP), V0, V1); \
	VMULPS V1, V1, V3; MULC(s+72+RMSprop_rest(FP), V3, V3); VFMADD213PS V3, V4, V2; FLUSH(s+72+RMSprop_unless(FP), V2); STORE(V2, (DX)(BX*1)); \
	VSQRTPS V2, V2; VADDPS V6, V2, V2; \
	MULC(s+72+RMSprop_rate(FP), V1, V1); VDIVPS V2, V1, V1; VSUBPS V1, V0, V0; STORE(V0, (DI)(BX*1))

// func(w, g, m, v []float32): w += g, m += g, v += g. It goes through memory as Adam does.
#define TOUCH_BODY \
	MOVQ w_base+0(FP), DI; MOVQ w_len+8(FP), CX; MOVQ g_base+24(FP), SI; MOVQ m_base+48(FP), DX; MOVQ v_base+72(FP), R8; XORQ BX, BX; \
	EACH(AHEAD(DI); AHEAD(SI); AHEAD(DX); AHEAD(R8); TOUCH_OF(LOADF, STOREF), TOUCH_OF(LOADT, STORET)); \
	VZEROUPPER; RET
#define TOUCH_OF(LOAD, STORE) \
	LOAD((DI)(BX*1), V0); LOAD((SI)(BX*1), V1); LOAD((DX)(BX*1), V2); LOAD((R8)(BX*1), V3); \
	VADDPS V1, V0, V0; VADDPS V1, V2, V2; VADDPS V1, V3, V3; \
	STORE(V0, (DI)(BX*1)); STORE(V2, (DX)(BX*1)); STORE(V3, (R8)(BX*1))
