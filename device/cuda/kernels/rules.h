// Rules of optimizers, on the elements of a lane at a time. Weights and moments come out
// with the bits that device/cpu's have, whoever updates: what is rounded when is as in
// adamGo and the like of its kernels, and nothing is left to the compiler's fusing.
//
// step says whether what it made of its operands counts. Where it does not, they are
// fetched again and given to what careful returns, whose step always counts. A rule that
// is SURE says nothing of gradients that are not finite; others say that they do not count.

#define MINE 8 // elements of a lane

// Usual finds roots and quotients of operands of usual sizes, to the nearest as
// __fsqrt_rn and __fdiv_rn do, by the very instructions these are made of, on cards of
// capability 7.5 to 12.0, but without their branches: those keep the elements of a lane
// from being worked on side by side. It notes whether all operands were usual; where they
// were not, what it found counts for nothing.
struct Usual {
    u32 least = 0xffffffff; // bits of the smallest that is not zero, less one
    float most = 0;         // infinite, or not a number, where one was too large

    __device__ __forceinline__ void see(float size) { least = min(least, __float_as_uint(size) - 1); }
    __device__ __forceinline__ bool all() const { return least >= __float_as_uint(0x1p-90f) - 1 && most <= 0x1p127f; }

    // root of 0, or of 2^-90 to 2^31.
    __device__ __forceinline__ float root(float x) {
        see(x);
        most = __fmaf_rn(x, 0x1p96f, most);
        float r;
        asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(__fadd_rn(x, 0x1p-120f))); // which is x, unless that is 0
        float s = __fmul_rn(x, r);
        return __fmaf_rn(__fmaf_rn(-s, s, x), __fmul_rn(0.5f, r), s);
    }

    // quotient a/b, for an a of 0 or of size 2^-90 to 2^63, and a b that is known to be
    // 2^-60 to 2^32. What is left over is found with its sign changed, which keeps that of 0.
    __device__ __forceinline__ float quotient(float a, float b) {
        see(fabsf(a));
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

    __device__ __forceinline__ bool step(float (&x)[MINE], const float (&grad)[MINE], float (&mean)[MINE], float (&square)[MINE]) const {
#pragma unroll
        for (int k = 0; k < MINE; k++) {
            moments(x[k], grad[k], mean[k], square[k]);
            x[k] = __fmaf_rn(x[k], shrink, -__fdiv_rn(__fmul_rn(mean[k], rate), __fmaf_rn(__fsqrt_rn(square[k]), root, eps)));
        }
        return true;
    }
    __device__ __forceinline__ const Adam &careful() const { return *this; }
};

// QuickAdam is Adam where all numbers are of usual sizes.
struct QuickAdam : Adam {
    static const bool SURE = false;

    // usual says that all divisors are, whose roots are.
    __device__ __forceinline__ bool usual() const { return eps >= 0x1p-60f && eps <= 0x1p31f && root >= 0 && root <= 0x1p15f; }

    __device__ __forceinline__ bool step(float (&x)[MINE], const float (&grad)[MINE], float (&mean)[MINE], float (&square)[MINE]) const {
        Usual sizes;
#pragma unroll
        for (int k = 0; k < MINE; k++) {
            moments(x[k], grad[k], mean[k], square[k]);
            x[k] = __fmaf_rn(x[k], shrink, -sizes.quotient(__fmul_rn(mean[k], rate), __fmaf_rn(sizes.root(square[k]), root, eps)));
        }
        return usual() && sizes.all();
    }
};

// Stochastic gradient descent. Without momentum, moments stay as they are.
struct SGD {
    static const bool SURE = true;
    float rate, decay, momentum, fresh, direct, through;
    bool keeps;

    __device__ __forceinline__ bool step(float (&x)[MINE], const float (&grad)[MINE], float (&mean)[MINE], float (&)[MINE]) const {
#pragma unroll
        for (int k = 0; k < MINE; k++) {
            float by = __fmaf_rn(x[k], decay, grad[k]);
            if (keeps) {
                mean[k] = __fmaf_rn(by, fresh, __fmul_rn(mean[k], momentum));
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

    __device__ __forceinline__ bool step(float (&x)[MINE], const float (&grad)[MINE], float (&mean)[MINE], float (&)[MINE]) const {
#pragma unroll
        for (int k = 0; k < MINE; k++) {
            float by = __fmaf_rn(mean[k], beta1, __fmul_rn(grad[k], rest1));
            by = by > 0 ? 1.0f : by < 0 ? -1.0f : by; // of zero, or of what is not a number, itself
            x[k] = __fmaf_rn(x[k], shrink, -__fmul_rn(by, rate));
            mean[k] = __fmaf_rn(mean[k], beta2, __fmul_rn(grad[k], rest2));
        }
        return true;
    }
    __device__ __forceinline__ const Lion &careful() const { return *this; }
};
