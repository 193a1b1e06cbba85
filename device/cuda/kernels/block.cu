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

// out [n] = the weight, n elements in rows of width.
extern "C" __global__ void __launch_bounds__(256) dequantizeBlocks(const u8 *in, Element *out, i64 n, i64 width) {
    Weight w = {in, n, width};
    for (i64 i = position(); i < n; i += (i64)gridDim.x * blockDim.x) narrow(w.at(i), out + i);
}
