#include "cache.h"

// How numbers are stored in a cache, in any type it can have.

// code8 rounds to an F8E4M3; x is at most 448.
__device__ __forceinline__ u8 code8(float x) {
    u32 u = __float_as_uint(x), sign = u >> 24 & 0x80;
    u &= 0x7fffffff;
    if (u > 0x7f800000) return 0x7f;
    float a = __uint_as_float(u);
    if (a < 0.015625f) return (u8)(sign | (u32)rintf(a * 512.0f)); // below 2^-6 they are multiples of 2^-9
    u += 0x7ffff + (u >> 20 & 1);
    return (u8)(sign | min((u >> 20) - (120u << 3), 0x7eu));
}
__device__ __forceinline__ float number8(u8 code) {
    u32 size = code & 0x7f;
    float a = size < 8 ? size * 0.001953125f : __uint_as_float((size + (120u << 3)) << 20);
    if (size == 0x7f) a = __uint_as_float(0x7fc00000);
    return code & 0x80 ? -a : a;
}

// put stores one number of a row of the cache; scale is what the row's is.
__device__ __forceinline__ void put(void *cache, int type, i64 i, float x, float scale) {
    if (type == F32) ((float *)cache)[i] = x;
    if (type == BF16) narrow(x, (bf16 *)cache + i);
    if (type == F16) narrow(x, (f16 *)cache + i);
    if (type == I8ROW) {
        f16 half;
        narrow(x, &half);
        float factor = scale > 0 ? __fmul_rn(__fdiv_rn(1.0f, scale), 127.0f) : 0.0f;
        ((signed char *)cache)[i] = (signed char)rintf(__fmul_rn(wide(half), factor));
    }
    if (type == F8ROW) ((u8 *)cache)[i] = scale > 0 ? code8(__fdiv_rn(x, scale)) : 0;
}
// get reads one; n is how many the cache has, d how many a row, and row the row's number.
__device__ __forceinline__ float get(const void *cache, int type, i64 i, i64 n, int d, i64 row) {
    if (type == F32) return ((const float *)cache)[i];
    if (type == BF16) return wide(((const bf16 *)cache)[i]);
    if (type == F16) return wide(((const f16 *)cache)[i]);
    if (type == I4ROW) {
        int e = (int)(i - row * d), bytes = (d + 1) / 2;
        int code = ((const u8 *)cache)[row * bytes + e / 2] >> (4 * (e & 1)) & 15;
        return (code - 8) * wide(((const f16 *)((const u8 *)cache + n / d * bytes))[row * ((d + GROUP - 1) / GROUP) + e / GROUP]);
    }
    float scale = ((const float *)((const u8 *)cache + n))[row];
    if (type == I8ROW) return __fmul_rn(__fmul_rn((float)((const signed char *)cache)[i], scale), 7.874015718698502e-3f);
    return __fmul_rn(number8(((const u8 *)cache)[i]), scale);
}

// putGroups stores a row of d numbers in 4 bits, by a warp.
__device__ __forceinline__ void putGroups(u8 *cache, const Element *x, i64 row, int d, i64 n) {
    const int lane = threadIdx.x & 31, bytes = (d + 1) / 2, groups = (d + GROUP - 1) / GROUP;
    f16 *scales = (f16 *)(cache + n / d * bytes) + row * groups;
    for (int g = 0; g < groups; g++) {
        const int i = g * GROUP + lane;
        const float v = i < d ? wide(x[i]) : 0.0f, most = warpMax(fabsf(v));
        float greatest = __shfl_sync(0xffffffffu, v, __ffs(__ballot_sync(0xffffffffu, fabsf(v) == most)) - 1);
        if (__any_sync(0xffffffffu, v != v)) greatest = __uint_as_float(0x7fc00000);
        f16 half;
        narrow(greatest * -0.125f, &half);
        const float by = wide(half);
        u32 code = 8;
        if (by != 0) code = (u32)(int)(fminf(fmaxf(rintf(__fdiv_rn(v, by)), -8.0f), 7.0f) + 8.0f);
        const u32 other = __shfl_xor_sync(0xffffffffu, i < d ? code : 0u, 1);
        if (i < d && !(lane & 1)) cache[row * bytes + i / 2] = (u8)(code | other << 4);
        if (lane == 0) scales[g] = half;
    }
}

// storeRow stores d numbers as a row of a cache of n numbers, by a warp.
__device__ __forceinline__ void storeRow(void *to, int type, const Element *x, i64 row, int d, i64 n) {
    const int lane = threadIdx.x & 31;
    if (type == I4ROW) {
        putGroups((u8 *)to, x, row, d, n);
        return;
    }
    float most = 0;
    if (type >= I8ROW) {
        for (int i = lane; i < d; i += 32) most = fmaxf(most, fabsf(wide(x[i])));
        most = warpMax(most);
        if (type == I8ROW) {
            f16 half;
            narrow(most, &half);
            most = wide(half);
        } else
            most = __fdiv_rn(most, 448.0f);
        if (lane == 0) ((float *)((u8 *)to + n))[row] = most;
    }
    for (int i = lane; i < d; i += 32) put(to, type, row * d + i, wide(x[i]), most);
}
