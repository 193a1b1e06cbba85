#include "common.h"

// counted gives ids, or 0 for those that are ignored, and 1 or 0.
extern "C" __global__ void __launch_bounds__(256) counted(const int *ids, int *to, float *counts, i64 n, i64 ignored) {
    for (i64 i = position(); i < n; i += (i64)gridDim.x * blockDim.x) {
        bool counts1 = ids[i] != ignored;
        to[i] = counts1 ? ids[i] : 0;
        counts[i] = counts1;
    }
}

// integersToF32 gives integers as f32.
extern "C" __global__ void __launch_bounds__(256) integersToF32(const int *x, float *y, i64 n) {
    for (i64 i = position(); i < n; i += (i64)gridDim.x * blockDim.x) y[i] = x[i];
}
