#include "common.h"

// blend mixes y into x as op.Blend says, rounded exactly as there.
extern "C" __global__ void __launch_bounds__(256) blend(float *x, const Element *y, const float *clip, i64 n, float keep, float take, float plain) {
    float by = clip[0];
    if (!(by > 0)) return;
    if (plain != 0) by = 1;
    for (i64 i = position(); i < n; i += (i64)gridDim.x * blockDim.x) {
        float part = __fmul_rn(__fmul_rn(wide(y[i]), by), take);
        x[i] = keep == 0 ? part : __fmaf_rn(x[i], keep, part);
    }
}
