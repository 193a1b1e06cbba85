#include "mask.h"
#include "fragments.h"

// delta = the dot products of o and do, laid out like lse. DELTA_LANES lanes work on a row, 16
// bytes each; 256 threads.
#define DELTA_LANES (CHUNKS <= 8 ? 8 : CHUNKS <= 16 ? 16 : 32)
extern "C" __global__ void attentionDelta(const Element *o, const Element *grad, float *delta, i64 n, int T, int heads, int width) {
    const int lanes = DELTA_LANES;
    int i = threadIdx.y * 32 + threadIdx.x, lane = i % lanes;
    i64 row = (i64)blockIdx.x * (256 / lanes) + i / lanes; // over samples, queries, heads
    float sum = 0;
    if (row < n && lane < CHUNKS) {
        float x[LANES], y[LANES];
        load(o + row * HEAD + lane * LANES, x);
        load(grad + row * HEAD + lane * LANES, y);
#pragma unroll
        for (int k = 0; k < LANES; k++) sum += x[k] * y[k];
    }
#pragma unroll
    for (int d = lanes / 2; d > 0; d >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, d);
    if (row >= n || lane != 0) return;
    i64 b = row / ((i64)T * heads), t = row / heads % T, h = row % heads;
    delta[(b * heads + h) * T + t] = sum;
}
