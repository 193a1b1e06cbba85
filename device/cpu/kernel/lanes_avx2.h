// The vector loops (*.h without a CPU in their name) are written once, in the macros below.
// These are the macros for AVX2: 8 lanes. They use V12 (scratch of SCALE2 and FLUSH), V13 (mask
// of the tail), V14 (mask of LESS), V15 (a number from memory) and, where e^x is computed, V11
// (mask of KEEP).

#define LANES 8
#define BYTES 32

#define V0 Y0
#define V1 Y1
#define V2 Y2
#define V3 Y3
#define V4 Y4
#define V5 Y5
#define V6 Y6
#define V7 Y7
#define V8 Y8
#define V9 Y9
#define V10 Y10
#define V11 Y11
#define V12 Y12
#define V13 Y13
#define V14 Y14
#define V15 Y15

// A whole vector of memory.
#define LOADF(at, v) VMOVUPS at, v
#define STOREF(v, at) VMOVUPS v, at

// The first CX (below LANES) lanes of memory; the rest reads as zero. Spoils AX.
#define TAIL LEAQ ·laneMask+64(SB), AX; SHLQ $2, CX; SUBQ CX, AX; SHRQ $2, CX; VMOVUPS (AX), Y13
#define LOADT(at, v) VMASKMOVPS at, Y13, v
#define STORET(v, at) VMASKMOVPS v, Y13, at
#define MERGET(v, dst) VBLENDVPS Y13, v, dst, dst  // dst = v in the lanes of the tail

// Arithmetic with one number from memory.
#define CONST(c, v) VBROADCASTSS c, v
#define ADDC(c, a, dst) VBROADCASTSS c, Y15; VADDPS Y15, a, dst
#define SUBC(c, a, dst) VBROADCASTSS c, Y15; VSUBPS Y15, a, dst
#define MULC(c, a, dst) VBROADCASTSS c, Y15; VMULPS Y15, a, dst
#define ANDC(c, a, dst) VBROADCASTSS c, Y15; VANDPS Y15, a, dst
#define MULADDC(c, b, a) VBROADCASTSS c, Y15; VFMADD213PS Y15, b, a   // a = a*b + c
#define ADDMULC(c, b, a) VBROADCASTSS c, Y15; VFMADD231PS Y15, b, a   // a += b*c
#define SUBMULC(c, b, a) VBROADCASTSS c, Y15; VFNMADD231PS Y15, b, a  // a -= b*c

#define ROUND(x, y) VROUNDPS $0, x, y
// KEEP marks the lanes of x that are at least low. In these SCALE2 multiplies y by 2^n, n being
// an integer from -252 to 254, in two steps so that each factor is a normal number; in the
// other lanes it makes y zero.
#define KEEP(x, low) VCMPPS $0x15, low, x, Y11
#define SCALE2(n, y) \
	VCVTPS2DQ n, Y12; \
	VPSRAD $1, Y12, Y14; \
	VPSUBD Y14, Y12, Y12; \
	VPBROADCASTD ·c+constants_bias(SB), Y15; \
	VPADDD Y15, Y12, Y12; \
	VPADDD Y15, Y14, Y14; \
	VPSLLD $23, Y12, Y12; \
	VPSLLD $23, Y14, Y14; \
	VMULPS Y12, y, y; \
	VMULPS Y14, y, y; \
	VANDPS Y11, y, y

// LESS marks the lanes where a is less than b; CHOOSE copies its first operand in these.
#define LESS(a, b) VCMPPS $0x11, b, a, Y14
#define CHOOSE(yes, dst) VBLENDVPS Y14, yes, dst, dst

// FLUSH turns lanes that have none of the bits c into zero of their sign.
#define FLUSH(c, v) \
	VPXOR Y12, Y12, Y12; \
	ANDC(c, v, Y15); \
	VPCMPEQD Y12, Y15, Y15; \
	VPSRLD $1, Y15, Y15; \
	VPANDN v, Y15, v

// FLUSH_BOTH is FLUSH of v and of u. Lanes that need it are rare, so both vectors are tested
// together and the rest is jumped over, to the label normal. Overwrites t and AX.
#define FLUSH_BOTH(c, v, d, u, t, normal) \
	VPXOR Y12, Y12, Y12; \
	ANDC(c, v, t); \
	ANDC(d, u, Y15); \
	VPMINUD t, Y15, Y15; \
	VPCMPEQD Y12, Y15, Y15; \
	VMOVMSKPS Y15, AX; \
	TESTL AX, AX; \
	JZ normal; \
	FLUSH(c, v); \
	FLUSH(d, u); \
normal:

// The sum and the largest of all lanes of V0, in X0. Spoils V1.
#define SUM_LANES SUM_EIGHT
#define MAX_LANES MAX_EIGHT

// Half a vector of floats is converted to a vector of doubles. SUM_DOUBLES adds the doubles of
// V0 into X0.
#define WIDE_BYTES 16
#define SUM_DOUBLES SUM_FOUR_DOUBLES

// Arithmetic with doubles, and with one from memory. ROUNDD takes the nearest integer, FLOORD the one below; NARROWD makes floats
// of a vector of doubles, half a vector of them, and stores it.
#define CONSTD(c, v) VBROADCASTSD c, v
#define MULD(c, a, dst) VBROADCASTSD c, Y15; VMULPD Y15, a, dst
#define MULADDD(c, b, a) VBROADCASTSD c, Y15; VFMADD213PD Y15, b, a   // a = a*b + c
#define SUBMULD(c, b, a) VBROADCASTSD c, Y15; VFNMADD231PD Y15, b, a  // a -= b*c
#define ROUNDD(x, y) VROUNDPD $0, x, y
#define FLOORD(x, y) VROUNDPD $1, x, y
#define NARROWD(v, at) VCVTPD2PSY v, X15; VMOVUPS X15, at
#define HALF_PS X0
