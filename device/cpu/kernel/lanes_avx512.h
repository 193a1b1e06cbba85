// The vector loops (*.h without a CPU in their name) are written once, in the macros below.
// These are the macros for AVX-512: 16 lanes, with masks in K1 (tail), K2 (LESS, FLUSH) and K3
// (KEEP).

#define LANES 16
#define BYTES 64

#define V0 Z0
#define V1 Z1
#define V2 Z2
#define V3 Z3
#define V4 Z4
#define V5 Z5
#define V6 Z6
#define V7 Z7
#define V8 Z8
#define V9 Z9
#define V10 Z10
#define V11 Z11
#define V12 Z12
#define V13 Z13
#define V14 Z14
#define V15 Z15

// A whole vector of memory.
#define LOADF(at, v) VMOVUPS at, v
#define STOREF(v, at) VMOVUPS v, at

// The first CX (below LANES) lanes of memory; the rest reads as zero. Spoils AX.
#define TAIL MOVQ $1, AX; SHLQ CX, AX; DECQ AX; KMOVW AX, K1
#define LOADT(at, v) VMOVUPS.Z at, K1, v
#define STORET(v, at) VMOVUPS v, K1, at
#define MERGET(v, dst) VMOVAPS v, K1, dst  // dst = v in the lanes of the tail

// Arithmetic with one number from memory.
#define CONST(c, v) VBROADCASTSS c, v
#define ADDC(c, a, dst) VADDPS.BCST c, a, dst
#define SUBC(c, a, dst) VSUBPS.BCST c, a, dst
#define MULC(c, a, dst) VMULPS.BCST c, a, dst
#define ANDC(c, a, dst) VANDPS.BCST c, a, dst
#define MULADDC(c, b, a) VFMADD213PS.BCST c, b, a   // a = a*b + c
#define ADDMULC(c, b, a) VFMADD231PS.BCST c, b, a   // a += b*c
#define SUBMULC(c, b, a) VFNMADD231PS.BCST c, b, a  // a -= b*c

#define ROUND(x, y) VRNDSCALEPS $0, x, y
// KEEP marks the lanes of x that are at least low. In these SCALE2 multiplies y by 2^n, n being
// an integer; in the other lanes it makes y zero.
#define KEEP(x, low) VCMPPS $0x15, low, x, K3
#define SCALE2(n, y) VSCALEFPS.Z n, y, K3, y

// LESS marks the lanes where a is less than b; CHOOSE copies its first operand in these.
#define LESS(a, b) VCMPPS $0x11, b, a, K2
#define CHOOSE(yes, dst) VMOVAPS yes, K2, dst

// FLUSH turns lanes that have none of the bits c into zero of their sign.
#define FLUSH(c, v) VPTESTNMD.BCST c, v, K2; VANDPS.BCST SIGN, v, K2, v
#define FLUSH_BOTH(c, v, d, u, t, normal) FLUSH(c, v); FLUSH(d, u)

// The sum and the largest of all lanes of V0, in X0. Spoils V1.
#define SUM_LANES VEXTRACTF32X8 $1, Z0, Y1; VADDPS Y1, Y0, Y0; SUM_EIGHT
#define MAX_LANES VEXTRACTF32X8 $1, Z0, Y1; VMAXPS Y1, Y0, Y0; MAX_EIGHT

// Half a vector of floats is converted to a vector of doubles. SUM_DOUBLES adds the doubles of
// V0 into X0.
#define WIDE_BYTES 32
#define SUM_DOUBLES VEXTRACTF64X4 $1, Z0, Y1; VADDPD Y1, Y0, Y0; SUM_FOUR_DOUBLES

// Arithmetic with doubles, and with one from memory. ROUNDD takes the nearest integer, FLOORD the one below; NARROWD makes floats
// of a vector of doubles, half a vector of them, and stores it.
#define CONSTD(c, v) VBROADCASTSD c, v
#define MULD(c, a, dst) VMULPD.BCST c, a, dst
#define MULADDD(c, b, a) VFMADD213PD.BCST c, b, a   // a = a*b + c
#define SUBMULD(c, b, a) VFNMADD231PD.BCST c, b, a  // a -= b*c
#define ROUNDD(x, y) VRNDSCALEPD $0, x, y
#define FLOORD(x, y) VRNDSCALEPD $1, x, y
#define NARROWD(v, at) VCVTPD2PS v, Y15; VMOVUPS Y15, at
#define HALF_PS Y0
