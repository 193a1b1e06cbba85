#include "codecs/gguf.h"

struct Code {
    static const int block = 256, bytes = 210;

    __device__ __forceinline__ static float at(const u8 *b, int i) {
        int h = i >> 7, g = i >> 5 & 3, l = i & 31, q = (b[64 * h + 32 * (g & 1) + l] >> (g >> 1 << 2) & 15) | (b[128 + 32 * h + l] >> (2 * g) & 3) << 4;
        return times(times(anyHalf(b + 208), (signed char)b[192 + (i >> 4)]), q - 32);
    }

    __device__ __forceinline__ static void eight(const u8 *b, int i, float (&x)[8]) {
        int h = i >> 7, g = i >> 5 & 3, l = i & 31;
        u64 codes = evenBytes(b + 64 * h + 32 * (g & 1) + l) >> (g >> 1 << 2), top = evenBytes(b + 128 + 32 * h + l) >> 2 * g;
        float scale = times(anyHalf(b + 208), (signed char)b[192 + (i >> 4)]);
#pragma unroll
        for (int k = 0; k < 8; k++) x[k] = times(scale, (((int)(codes >> 8 * k) & 15) | ((int)(top >> 8 * k) & 3) << 4) - 32);
    }
};

using Weight = BlockWeight<Code>;
