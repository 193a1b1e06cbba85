// Rules of optimizers, on the elements of a lane at a time. Weights and moments come out
// with the bits that device/cpu's have, whoever updates: what is rounded when is as in
// adamGo and the like of its kernels, and nothing is left to the compiler's fusing.
//
// step says whether what it made of its operands counts. Where it does not, they are
// fetched again and given to what careful returns, whose step always counts. A rule that
// is SURE says nothing of gradients that are not finite; others say that they do not count.
// Moments of which numbers below the normal ones become zero do so before anything is made
// of them: flushM and flushV say whether.

#define MINE 8 // elements of a lane

// flush is x, or zero of its sign where x is below the normal numbers.
__device__ __forceinline__ float flush(float x) {
    float y;
    asm("mul.rn.ftz.f32 %0, %1, 0f3f800000;" : "=f"(y) : "f"(x)); // by 1
    return y;
}

// Usual finds roots and quotients of operands of usual sizes, to the nearest as
// __fsqrt_rn and __fdiv_rn do, by the very instructions these are made of, on cards of
// capability 7.5 to 12.0, but without their branches: those keep the elements of a lane
// from being worked on side by side. It notes whether all operands were usual; where they
// were not, what it found counts for nothing.
struct Usual {
    u32 square = 0xffffffff, mean = 0xffffffff; // bits of the smallest that is not zero, less one
    float most = 0;                             // infinite, or not a number, where one was too large

    __device__ __forceinline__ static void see(u32 &least, float size) { least = min(least, __float_as_uint(size) - 1); }
    __device__ __forceinline__ bool all(float rate) const {
        bool small = __fmul_rn(__uint_as_float(mean), rate) < 0x1p-90f; // where all are zero this is not a number, and not small
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

    // quotient x·rate/b, for an x of 0 or a normal one with a product of size 2^-90 to 2^63,
    // and a b that is known to be 2^-60 to 2^32. What is left over is found with its sign
    // changed, which keeps that of 0.
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

// QuickAdam is Adam where all numbers are of usual sizes, and so no moment to be flushed.
struct QuickAdam : Adam {
    static const bool SURE = false;

    // usual says that all divisors are, whose roots are, and means normal, whose products are.
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

// Stochastic gradient descent. Without momentum, moments stay as they are.
struct SGD {
    static const bool SURE = true;
    float rate, decay, momentum, fresh, direct, through;
    bool keeps;

    __device__ __forceinline__ bool step(float (&x)[MINE], const float (&grad)[MINE], float (&mean)[MINE], float (&)[MINE], bool flushM, bool) const {
#pragma unroll
        for (int k = 0; k < MINE; k++) {
            float by = __fmaf_rn(x[k], decay, grad[k]);
            if (keeps) {
                mean[k] = __fmaf_rn(by, fresh, __fmul_rn(mean[k], momentum));
                if (flushM) mean[k] = flush(mean[k]);
                by = __fmaf_rn(by, direct, __fmul_rn(mean[k], through));
            }
            x[k] = __fmaf_rn(-rate, by, x[k]);
        }
        return true;
    }
    __device__ __forceinline__ const SGD &careful() const { return *this; }
};

struct Lion {
    static const bool SURE = true;
    float beta1, rest1, beta2, rest2, rate, shrink;

    __device__ __forceinline__ bool step(float (&x)[MINE], const float (&grad)[MINE], float (&mean)[MINE], float (&)[MINE], bool flushM, bool) const {
#pragma unroll
        for (int k = 0; k < MINE; k++) {
            float by = __fmaf_rn(mean[k], beta1, __fmul_rn(grad[k], rest1));
            by = by > 0 ? 1.0f : by < 0 ? -1.0f : by; // of zero, or of what is not a number, itself
            x[k] = __fmaf_rn(x[k], shrink, -__fmul_rn(by, rate));
            mean[k] = __fmaf_rn(mean[k], beta2, __fmul_rn(grad[k], rest2));
            if (flushM) mean[k] = flush(mean[k]);
        }
        return true;
    }
    __device__ __forceinline__ const Lion &careful() const { return *this; }
};
