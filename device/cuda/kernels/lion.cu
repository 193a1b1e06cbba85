#include "update.h"

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

#define LION_NUMBERS float beta1, float rest1, float beta2, float rest2, float rate, float shrink
#define LION_RULE Lion{beta1, rest1, beta2, rest2, rate, shrink}
#define LION(name, M)                                                                       \
    extern "C" __global__ void __launch_bounds__(256, 4) name(MASTER, void *m, LION_NUMBERS) { \
        update<false>(LION_RULE, Master{w, copy, type}, g, M{m}, Nothing{}, clip, n, key, first);              \
    }
LION(lion, Plain<float>)
LION(lionBF16, Plain<bf16>)
LION(lionF16, Plain<f16>)
LION(lion8, Coded<0>)
extern "C" __global__ void __launch_bounds__(256, 4) lionPure(PURE, void *m, int mType, LION_NUMBERS) {
    update<false>(LION_RULE, Pure{w, key, first}, g, Any{m, mType}, Nothing{}, clip, n, key, first);
}
