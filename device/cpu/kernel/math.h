// Functions of each lane of a vector, written in the macros of lanes_*.h. Their constants are
// explained in constants_amd64.go.

#define ONE ·c+constants_one(SB)
#define TWO ·c+constants_two(SB)
#define HALF ·c+constants_half(SB)
#define SIGNLESS ·c+constants_signless(SB)
#define SIGN ·c+constants_sign(SB)

// EACH is the loop of most functions: FULL runs for each whole vector, PART for the rest. CX
// holds the number of elements left, BX the offset in bytes. It ends at the label done.
#define EACH(FULL, PART) \
	SUBQ $LANES, CX; JLT tail; \
loop: \
	FULL; \
	ADDQ $BYTES, BX; SUBQ $LANES, CX; JGE loop; \
tail: \
	ADDQ $LANES, CX; JZ done; TAIL; \
	PART; \
done:

// Sums and maxima of eight lanes of V0, in X0. Spoil V1.
#define SUM_EIGHT VEXTRACTF128 $1, Y0, X1; VADDPS X1, X0, X0; VMOVHLPS X0, X0, X1; VADDPS X1, X0, X0; VMOVSHDUP X0, X1; VADDSS X1, X0, X0
#define MAX_EIGHT VEXTRACTF128 $1, Y0, X1; VMAXPS X1, X0, X0; VMOVHLPS X0, X0, X1; VMAXPS X1, X0, X0; VMOVSHDUP X0, X1; VMAXSS X1, X0, X0

#define SUM_FOUR_DOUBLES VEXTRACTF128 $1, Y0, X1; VADDPD X1, X0, X0; VUNPCKHPD X0, X0, X1; VADDSD X1, X0, X0

// y = e^x. Overwrites x and n. Lanes whose result is zero are skipped: a CPU takes long for an
// underflow, and masks of attention make many. A NaN stays one, since VMAXPS returns its first
// operand here when one is NaN.
#define EXP(x, y, n) \
	CONST(·c+constants_expLow(SB), y); \
	KEEP(x, y); \
	VMAXPS x, y, x; \
	CONST(·c+constants_expHigh(SB), y); \
	VMINPS x, y, x; \
	MULC(·c+constants_log2e(SB), x, n); \
	ROUND(n, n); \
	SUBMULC(·c+constants_ln2Hi(SB), n, x); \
	SUBMULC(·c+constants_ln2Lo(SB), n, x); \
	CONST(·c+constants_e4(SB), y); \
	MULADDC(·c+constants_e3(SB), x, y); \
	MULADDC(·c+constants_e2(SB), x, y); \
	MULADDC(·c+constants_e1(SB), x, y); \
	MULADDC(·c+constants_e0(SB), x, y); \
	MULADDC(ONE, x, y); \
	MULADDC(ONE, x, y); \
	SCALE2(n, y)

// y = 1/(1 + e^-x). Spoils x, n and t.
#define SIGMOID(x, y, n, t) \
	VXORPS t, t, t; \
	VSUBPS x, t, x; \
	EXP(x, y, n); \
	CONST(ONE, t); \
	VADDPS t, y, y; \
	VDIVPS y, t, y

// y = tanh x, keeping x. Spoils a, b, n and t.
#define TANH(x, y, a, b, n, t) \
	ANDC(SIGNLESS, x, a); \
	VXORPS x, a, t; \
	VADDPS a, a, b; \
	EXP(b, y, n); \
	ADDC(ONE, y, y); \
	CONST(TWO, b); \
	VDIVPS y, b, y; \
	CONST(ONE, b); \
	VSUBPS y, b, y; \
	VMULPS a, a, b; \
	CONST(·c+constants_t4(SB), n); \
	MULADDC(·c+constants_t3(SB), b, n); \
	MULADDC(·c+constants_t2(SB), b, n); \
	MULADDC(·c+constants_t1(SB), b, n); \
	MULADDC(·c+constants_t0(SB), b, n); \
	VMULPS a, b, b; \
	VFMADD213PS a, b, n; \
	CONST(·c+constants_tanhSmall(SB), b); \
	LESS(a, b); \
	CHOOSE(n, y); \
	VORPS t, y, y

// y = erf x, keeping x. Spoils a, b, n and t.
#define ERF(x, y, a, b, n, t) \
	ANDC(SIGNLESS, x, a); \
	CONST(·c+constants_erfHigh(SB), b); \
	VMINPS a, b, t; \
	CONST(·c+constants_l7(SB), b); \
	MULADDC(·c+constants_l6(SB), t, b); \
	MULADDC(·c+constants_l5(SB), t, b); \
	MULADDC(·c+constants_l4(SB), t, b); \
	MULADDC(·c+constants_l3(SB), t, b); \
	MULADDC(·c+constants_l2(SB), t, b); \
	MULADDC(·c+constants_l1(SB), t, b); \
	MULADDC(·c+constants_l0(SB), t, b); \
	EXP(b, y, n); \
	CONST(ONE, t); \
	VSUBPS y, t, y; \
	VMULPS a, a, b; \
	CONST(·c+constants_r6(SB), n); \
	MULADDC(·c+constants_r5(SB), b, n); \
	MULADDC(·c+constants_r4(SB), b, n); \
	MULADDC(·c+constants_r3(SB), b, n); \
	MULADDC(·c+constants_r2(SB), b, n); \
	MULADDC(·c+constants_r1(SB), b, n); \
	MULADDC(·c+constants_r0(SB), b, n); \
	VFMADD213PS a, a, n; \
	LESS(a, t); \
	CHOOSE(n, y); \
	VXORPS x, a, t; \
	VORPS t, y, y
