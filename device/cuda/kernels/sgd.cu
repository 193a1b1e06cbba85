#include "update.h"

// Stochastic gradient descent. Without momentum the state stays as it is.
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

#define SGD_NUMBERS float rate, float decay, float momentum, float fresh, float direct, float through, float keeps
#define SGD_RULE SGD{rate, decay, momentum, fresh, direct, through, keeps != 0}
#define SGDS(name, M)                                                                      \
    extern "C" __global__ void __launch_bounds__(256, 4) name(MASTER, void *m, SGD_NUMBERS) { \
        update<false>(SGD_RULE, Master{w, copy, type}, g, M{m}, Nothing{}, clip, n, key, first);              \
    }
SGDS(sgd, Plain<float>)
SGDS(sgdBF16, Plain<bf16>)
SGDS(sgdF16, Plain<f16>)
SGDS(sgd8, Coded<0>)
extern "C" __global__ void __launch_bounds__(256) sgdPure(PURE, void *m, int mType, SGD_NUMBERS) {
    update<false>(SGD_RULE, Pure{w, key, first}, g, Any{m, mType}, Nothing{}, clip, n, key, first);
}
extern "C" __global__ void __launch_bounds__(256, 4) sgdBare(MASTER, float rate, float decay) {
    update<false>(SGD{rate, decay}, Master{w, copy, type}, g, Nothing{}, Nothing{}, clip, n, key, first);
}
extern "C" __global__ void __launch_bounds__(256) sgdBarePure(PURE, float rate, float decay) {
    update<false>(SGD{rate, decay}, Pure{w, key, first}, g, Nothing{}, Nothing{}, clip, n, key, first);
}
