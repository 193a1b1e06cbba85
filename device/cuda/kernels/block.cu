#include "codes.h"
#include "codec.h"

// Kernels for any block format: struct Weight decodes one element at a time. codec.h stands for
// the header in codecs/ of the format that the file is compiled for. Faster kernels for some
// formats are in quantized.cu and dequantize.cu.

// y [rows outputs] = x [rows width] · the weight (+ bias), for few rows. 32 by 8 threads: a
// warp per output; blockIdx.y is the row.
extern "C" __global__ void quantizedMatmul(const Element *x, const u8 *in, const Element *bias, Element *y, i64 outputs, i64 width) {
    Weight w = {in, outputs * width, width};
    i64 o = (i64)blockIdx.x * blockDim.y + threadIdx.y, row = blockIdx.y;
    if (o >= outputs) return;
    float sum = 0;
    for (i64 k = threadIdx.x; k < width; k += 32) sum += wide(x[row * width + k]) * w.at(o * width + k);
    sum = warpSum(sum);
    if (threadIdx.x == 0) narrow(bias ? sum + wide(bias[o]) : sum, y + row * outputs + o);
}

// eightOf decodes eight elements, by a format's own way where it has one.
template <class W> __device__ __forceinline__ auto eightOf(const W &w, i64 i, float (&x)[8], int) -> decltype(w.eight(i, x)) { w.eight(i, x); }
template <class W> __device__ __forceinline__ void eightOf(const W &w, i64 i, float (&x)[8], long) {
#pragma unroll
    for (int k = 0; k < 8; k++) x[k] = w.at(i + k);
}

// out [n] = the weight, n elements in rows of width. A thread decodes eight at a time, and stores
// them without caching: a whole weight is larger than the cache.
extern "C" __global__ void __launch_bounds__(256) dequantizeBlocks(const u8 *in, Element *out, i64 n, i64 width) {
    Weight w = {in, n, width};
    i64 step = (i64)gridDim.x * blockDim.x;
#pragma unroll 2
    for (i64 e = position(); e < n / 8; e += step) {
        float x[8];
        eightOf(w, 8 * e, x, 0);
#pragma unroll
        for (int k = 0; k < 8; k += LANES) {
            Lane v;
#pragma unroll
            for (int j = 0; j < LANES; j++) narrow(x[k + j], &v.x[j]);
            __stcs((float4 *)(out + 8 * e + k), *(float4 *)&v);
        }
    }
    for (i64 i = n / 8 * 8 + position(); i < n; i += step) narrow(w.at(i), out + i);
}
