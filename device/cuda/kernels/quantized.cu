#include "codes.h"

// Matmuls with weights in block formats, for few rows: a warp per output and row decodes the
// weight as it reads it. block.cu has the plain form for all formats.

__device__ __forceinline__ float halfOf(float x) {
    f16 h;
    narrow(x, &h);
    return wide(h);
}

// The matmul with 4-bit weights whose blocks do not cross rows. A lane reads eight codes at a
// time, the sum over a block is multiplied by its absmax, and a code is decoded once for ROWS
// rows of x. The bits of a row do not depend on ROWS.
template <int ROWS> __device__ __forceinline__ void fourBitMatmul(const Element *x, const u8 *in, const Element *bias, Element *y, i64 rows,
                                                                   i64 outputs, i64 width, int kind) {
    __shared__ float values[16], scaleValues[256];
    int thread = threadIdx.y * 32 + threadIdx.x;
    if (thread < 16) values[thread] = fourBitValues[kind][thread];
    scaleValues[thread] = dynamicValues[0][thread];
    __syncthreads();
    i64 o = (i64)blockIdx.x * 8 + threadIdx.y, first = (i64)blockIdx.y * ROWS, blocks = outputs * width / 64;
    if (o >= outputs) return;
    const u8 *scales = in + outputs * width / 2, *groups = scales + blocks;
    float offset = anyFloat(groups + 4 * ((blocks + 255) / 256)), sum[ROWS] = {};
#pragma unroll 4
    for (i64 k = 8 * threadIdx.x; k < width; k += 256) {
        i64 at = o * width + k;
        u32 codes = __ldcs((const u32 *)(in + at / 2));
        float absmax = __fadd_rn(__fmul_rn(scaleValues[scales[at / 64]], anyFloat(groups + 4 * (at / 16384))), offset);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            if (first + r >= rows) break;
            float dot = 0;
#pragma unroll
            for (int h = 0; h < 8; h += LANES) {
                float part[LANES];
                load(x + (first + r) * width + k + h, part);
#pragma unroll
                for (int j = 0; j < LANES; j++) dot = __fmaf_rn(part[j], values[codes >> ((h + j) / 2 * 8 + (j % 2 ? 0 : 4)) & 15], dot);
            }
            sum[r] = __fmaf_rn(dot, absmax, sum[r]);
        }
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        float all = warpSum(sum[r]);
        if (threadIdx.x == 0 && first + r < rows) narrow(bias ? all + wide(bias[o]) : all, y + (first + r) * outputs + o);
    }
}
#define FOURBIT(name, ROWS)                                                                                                                   \
    extern "C" __global__ void __launch_bounds__(256) name(const Element *x, const u8 *in, const Element *bias, Element *y, i64 rows,         \
                                                           i64 outputs, i64 width, int kind) {                                                \
        fourBitMatmul<ROWS>(x, in, bias, y, rows, outputs, width, kind);                                                                     \
    }
FOURBIT(fourBitOne, 1)
FOURBIT(fourBitTwo, 2)
FOURBIT(fourBitFour, 4)
FOURBIT(fourBitEight, 8)

// apart[k] = a magnitude of column k, rounded to f16, is at least the threshold.
extern "C" __global__ void findOutliers(const Element *x, u8 *apart, i64 rows, i64 width, float threshold) {
    i64 k = position();
    if (k >= width) return;
    u8 found = 0;
    for (i64 r = 0; r < rows; r++) found |= fabsf(halfOf(wide(x[r * width + k]))) >= threshold;
    apart[k] = found;
}

// most[r] = the largest magnitude of row r below the threshold; a block of 256 per row.
extern "C" __global__ void rowSizes(const Element *x, float *most, i64 width, float threshold) {
    float top = 0;
    for (i64 k = threadIdx.x; k < width; k += blockDim.x) {
        float size = fabsf(halfOf(wide(x[blockIdx.x * width + k])));
        if (size < threshold) top = fmaxf(top, size);
    }
    top = rowMax(top);
    if (threadIdx.x == 0) most[blockIdx.x] = top;
}

// The matmul of LLM.int8, given what the two kernels above found. 32 by 8 threads: a warp
// per output; blockIdx.y is the row.
extern "C" __global__ void outlierMatmul(const Element *x, const u8 *in, const Element *bias, const u8 *apart, const float *most, Element *y, i64 outputs, i64 width) {
    i64 o = (i64)blockIdx.x * blockDim.y + threadIdx.y, row = blockIdx.y;
    if (o >= outputs) return;
    float size = most[row], factor = size > 0 ? 127 / size : 0, scale = anyFloat(in + outputs * width + 4 * o), whole = 0, plain = 0;
    for (i64 k = threadIdx.x; k < width; k += 32) {
        float value = wide(x[row * width + k]), code = (float)(signed char)in[o * width + k];
        if (apart[k]) plain += value * code;
        else whole += rintf(__fmul_rn(halfOf(value), factor)) * code;
    }
    whole = warpSum(whole);
    plain = warpSum(plain);
    float sum = whole * (size * scale / (127 * 127)) + plain * (scale / 127);
    if (threadIdx.x == 0) narrow(bias ? sum + wide(bias[o]) : sum, y + row * outputs + o);
}
