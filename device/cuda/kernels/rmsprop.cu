#include "update.h"

// RMSprop and Adagrad. Their only state, the squares, is the first.
struct RMSprop {
    static const bool SURE = true;
    float couple, alpha, rest, eps, rate;

    __device__ __forceinline__ bool step(float (&x)[MINE], const float (&grad)[MINE], float (&square)[MINE], float (&)[MINE], bool flushV, bool) const {
#pragma unroll
        for (int k = 0; k < MINE; k++) {
            float g = __fmaf_rn(x[k], couple, grad[k]);
            square[k] = __fmaf_rn(square[k], alpha, __fmul_rn(__fmul_rn(g, g), rest));
            if (flushV) square[k] = flush(square[k]);
            x[k] = __fsub_rn(x[k], __fdiv_rn(__fmul_rn(g, rate), __fadd_rn(__fsqrt_rn(square[k]), eps)));
        }
        return true;
    }
    __device__ __forceinline__ const RMSprop &careful() const { return *this; }
};

#define RMSPROP_NUMBERS float couple, float alpha, float rest, float eps, float rate
#define RMSPROP_RULE RMSprop{couple, alpha, rest, eps, rate}
#define RMSPROP(name, V)                                                                          \
    extern "C" __global__ void __launch_bounds__(256, 4) name(MASTER, void *v, RMSPROP_NUMBERS) { \
        update<false>(RMSPROP_RULE, Master{w, copy, type}, g, V{v}, Nothing{}, clip, n, key, first); \
    }
RMSPROP(rmsprop, Plain<float>)
RMSPROP(rmspropBF16, Plain<bf16>)
RMSPROP(rmspropF16, Plain<f16>)
RMSPROP(rmsprop8, Coded<1>)
extern "C" __global__ void __launch_bounds__(256, 4) rmspropPure(PURE, void *v, int vType, RMSPROP_NUMBERS) {
    update<false>(RMSPROP_RULE, Pure{w, key, first}, g, Any{v, vType}, Nothing{}, clip, n, key, first);
}
