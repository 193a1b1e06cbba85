#include "update.h"

// Usual computes square roots and quotients of numbers of moderate size, rounded to nearest
// like __fsqrt_rn and __fdiv_rn. It uses the instructions these are made of (on compute
// capability 7.5 to 12.0) without their branches, which would keep the elements of a lane
// from being computed in parallel. It remembers whether all operands were of moderate size;
// where one was not, its results must not be used.
struct Usual {
    u32 square = 0xffffffff, mean = 0xffffffff; // bits of the smallest nonzero operand, minus one
    float most = 0;                             // infinite or NaN where an operand was too large

    __device__ __forceinline__ static void see(u32 &least, float size) { least = min(least, __float_as_uint(size) - 1); }
    __device__ __forceinline__ bool all(float rate) const {
        bool small = __fmul_rn(__uint_as_float(mean), rate) < 0x1p-90f; // NaN, which is not small, where all are zero
        return square >= __float_as_uint(0x1p-90f) - 1 && most <= 0x1p127f && !small;
    }

    // root of 0, or of 2^-90 to 2^31.
    __device__ __forceinline__ float root(float x) {
        see(square, x);
        most = __fmaf_rn(x, 0x1p96f, most);
        float r;
        asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(__fadd_rn(x, 0x1p-120f))); // which is x, unless that is 0
        float s = __fmul_rn(x, r);
        return __fmaf_rn(__fmaf_rn(-s, s, x), __fmul_rn(0.5f, r), s);
    }

    // quotient is x·rate/b, for x = 0 or a normal x with |x·rate| from 2^-90 to 2^63, and b
    // known to be from 2^-60 to 2^32. The remainder is computed with its sign changed, which
    // keeps the sign of 0.
    __device__ __forceinline__ float quotient(float x, float rate, float b) {
        see(mean, fabsf(x));
        float a = __fmul_rn(x, rate);
        most = __fmaf_rn(a, a, most);
        float r;
        asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(b));
        r = __fmaf_rn(__fmaf_rn(-b, r, 1.0f), r, r);
        float q = __fmul_rn(a, r);
        return __fmaf_rn(-__fmaf_rn(b, q, -a), r, q);
    }
};

struct Adam {
    static const bool SURE = true;
    float couple, beta1, rest1, beta2, rest2, root, eps, rate, shrink;

    __device__ __forceinline__ void moments(float x, float grad, float &mean, float &square) const {
        float g = __fmaf_rn(x, couple, grad);
        mean = __fmaf_rn(mean, beta1, __fmul_rn(g, rest1));
        square = __fmaf_rn(square, beta2, __fmul_rn(__fmul_rn(g, g), rest2));
    }

    __device__ __forceinline__ bool step(float (&x)[MINE], const float (&grad)[MINE], float (&mean)[MINE], float (&square)[MINE], bool flushM, bool flushV) const {
#pragma unroll
        for (int k = 0; k < MINE; k++) {
            moments(x[k], grad[k], mean[k], square[k]);
            if (flushM) mean[k] = flush(mean[k]);
            if (flushV) square[k] = flush(square[k]);
            x[k] = __fmaf_rn(x[k], shrink, -__fdiv_rn(__fmul_rn(mean[k], rate), __fmaf_rn(__fsqrt_rn(square[k]), root, eps)));
        }
        return true;
    }
    __device__ __forceinline__ const Adam &careful() const { return *this; }
};

// QuickAdam is Adam where all numbers are of moderate size, so that no state is flushed.
struct QuickAdam : Adam {
    static const bool SURE = false;

    // usual reports whether the scalars allow it: then every divisor is in range where its
    // square root is, and every mean is normal where its quotient is in range.
    __device__ __forceinline__ bool usual() const { return eps >= 0x1p-60f && eps <= 0x1p31f && root >= 0 && root <= 0x1p15f && rate <= 0x1p36f; }

    __device__ __forceinline__ bool step(float (&x)[MINE], const float (&grad)[MINE], float (&mean)[MINE], float (&square)[MINE], bool, bool) const {
        Usual sizes;
#pragma unroll
        for (int k = 0; k < MINE; k++) {
            moments(x[k], grad[k], mean[k], square[k]);
            x[k] = __fmaf_rn(x[k], shrink, -sizes.quotient(mean[k], rate, __fmaf_rn(sizes.root(square[k]), root, eps)));
        }
        return usual() && sizes.all(rate);
    }
};

#define ADAM_NUMBERS float couple, float beta1, float rest1, float beta2, float rest2, float root, float eps, float rate, float shrink
#define ADAM_RULE {couple, beta1, rest1, beta2, rest2, root, eps, rate, shrink}
#define ADAM(name, ahead, M, V)                                                                  \
    extern "C" __global__ void __launch_bounds__(256, 3) name(MASTER, void *m, void *v, ADAM_NUMBERS) { \
        update<ahead>(QuickAdam{ADAM_RULE}, Master{w, copy, type}, g, M{m}, V{v}, clip, n, key, first);              \
    }
ADAM(adam, false, Plain<float>, Plain<float>)
ADAM(adamBF16, false, Plain<bf16>, Plain<bf16>)
ADAM(adamF16, false, Plain<f16>, Plain<f16>)
ADAM(adam8, true, Coded<0>, Coded<1>)
ADAM(adam8F32, false, Coded<0>, Plain<float>)
ADAM(adam8F16, false, Coded<0>, Plain<f16>)
extern "C" __global__ void __launch_bounds__(256, 3) adamMixed(MASTER, void *m, void *v, int mType, int vType, ADAM_NUMBERS) {
    update<false>(Adam ADAM_RULE, Master{w, copy, type}, g, Any{m, mType}, Any{v, vType}, clip, n, key, first);
}
extern "C" __global__ void __launch_bounds__(256, 4) adamPureBF16(PURE, void *m, void *v, ADAM_NUMBERS) {
    update<false>(QuickAdam{ADAM_RULE}, Pure{w, key, first}, g, Plain<bf16>{m}, Plain<bf16>{v}, clip, n, key, first);
}
extern "C" __global__ void __launch_bounds__(256, 3) adamPure(PURE, void *m, void *v, int mType, int vType, ADAM_NUMBERS) {
    update<false>(Adam ADAM_RULE, Pure{w, key, first}, g, Any{m, mType}, Any{v, vType}, clip, n, key, first);
}
