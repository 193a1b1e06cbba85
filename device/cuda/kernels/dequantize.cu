#include "codes.h"

// Decoding of 4-bit tensors: codes, two to a byte; a byte of scale per 64 elements; an
// f32 per 256 scales; one f32 for all.

#define GROUP 16384 // elements whose scales share a factor
#define PART 8192   // elements a block decodes
#define EIGHTS (PART / (8 * 256))

__device__ __forceinline__ void decode(u32 codes, float absmax, const float *values, float (&x)[8]) {
#pragma unroll
    for (int k = 0; k < 8; k++) x[k] = __fmul_rn(values[codes >> (k / 2 * 8 + (k % 2 ? 0 : 4)) & 15], absmax);
}

// put stores eight elements without caching them: a whole weight is larger than the cache.
__device__ __forceinline__ void put(Element *out, const float (&x)[8]) {
#pragma unroll
    for (int k = 0; k < 8; k += LANES) {
        Lane v;
#pragma unroll
        for (int j = 0; j < LANES; j++) narrow(x[k + j], &v.x[j]);
        __stcs((float4 *)(out + k), *(float4 *)&v);
    }
}

// kind is 0 for NF4, 1 for FP4. A block of 256 threads decodes one part, a thread eight
// elements at a time, next to those of its neighbours.
extern "C" __global__ void __launch_bounds__(256) dequantize(const u8 *in, Element *out, i64 n, int kind) {
    __shared__ float values[16], scaleValues[256];
    if (threadIdx.x < 16) values[threadIdx.x] = fourBitValues[kind][threadIdx.x];
    scaleValues[threadIdx.x] = dynamicValues[0][threadIdx.x];
    __syncthreads();
    i64 blocks = (n + 63) / 64, part = (i64)blockIdx.x * PART, first = part + 8 * threadIdx.x;
    const u8 *scales = in + (n + 1) / 2, *groups = scales + blocks;
    float group = anyFloat(groups + 4 * (part / GROUP)), offset = anyFloat(groups + 4 * ((blocks + 255) / 256));
    if (part + PART > n) {
        for (i64 i = part + threadIdx.x; i < n; i += blockDim.x) {
            float absmax = __fadd_rn(__fmul_rn(scaleValues[scales[i / 64]], group), offset);
            narrow(__fmul_rn(values[in[i / 2] >> (i % 2 ? 0 : 4) & 15], absmax), out + i);
        }
        return;
    }
    u32 codes[EIGHTS];
    u8 scale[EIGHTS];
#pragma unroll
    for (int e = 0; e < EIGHTS; e++) {
        codes[e] = __ldcs((const u32 *)(in + (first + e * 2048) / 2));
        scale[e] = scales[(first + e * 2048) / 64];
    }
#pragma unroll
    for (int e = 0; e < EIGHTS; e++) {
        float x[8];
        decode(codes[e], __fadd_rn(__fmul_rn(scaleValues[scale[e]], group), offset), values, x);
        put(out + first + e * 2048, x);
    }
}

// Decoding of 8-bit tensors in rows: a byte per element, then an f32 per row.

// rowValue is the number of a code. KIND 0: an integer that counts 127ths of the row's scale.
// KIND 1: an 8-bit float (E4M3) that multiplies it.
template <int KIND> __device__ __forceinline__ float rowValue(u32 code, float scale) {
    if (KIND == 0) return __fmul_rn(__fmul_rn((float)(signed char)code, scale), 7.874015718698502e-3f);
    u32 size = code & 0x7f;
    float x = size == 0x7f ? __uint_as_float(0x7fc00000) : __uint_as_float(size << 20) * __uint_as_float((127u + 120) << 23); // 2^120
    return __fmul_rn(code & 0x80 ? -x : x, scale);
}

// A thread decodes eight elements at a time where all are in one row.
template <int KIND> __device__ __forceinline__ void decodeRows(const u8 *in, Element *out, i64 n, i64 width) {
    const u8 *scales = in + n;
    i64 eights = width % 8 == 0 ? n / 8 : 0, stride = (i64)gridDim.x * blockDim.x;
    for (i64 e = position(); e < eights; e += stride) {
        u64 codes = *(const u64 *)(in + 8 * e);
        float scale = anyFloat(scales + 4 * (8 * e / width)), x[8];
#pragma unroll
        for (int k = 0; k < 8; k++) x[k] = rowValue<KIND>((u32)(codes >> 8 * k) & 0xff, scale);
        put(out + 8 * e, x);
    }
    for (i64 i = 8 * eights + position(); i < n; i += stride) narrow(rowValue<KIND>(in[i], anyFloat(scales + 4 * (i / width))), out + i);
}
extern "C" __global__ void __launch_bounds__(256) dequantizeRowI8(const u8 *in, Element *out, i64 n, i64 width) { decodeRows<0>(in, out, n, width); }
extern "C" __global__ void __launch_bounds__(256) dequantizeRowF8(const u8 *in, Element *out, i64 n, i64 width) { decodeRows<1>(in, out, n, width); }
