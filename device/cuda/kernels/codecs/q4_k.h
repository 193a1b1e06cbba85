#include "codecs/gguf.h"

struct Code {
    static const int block = 256, bytes = 144;

    __device__ __forceinline__ static float at(const u8 *b, int i) {
        int s, m;
        pairK(b + 4, i >> 5, s, m);
        return affine(anyHalf(b), s, nibbleK(b + 16, i), anyHalf(b + 2), m);
    }

    __device__ __forceinline__ static void eight(const u8 *b, int i, float (&x)[8]) {
        int s, m;
        pairK(b + 4, i >> 5, s, m);
        u64 codes = *(const u64 *)(b + 16 + (i >> 6 << 5) + (i & 31)) >> ((i >> 5 & 1) << 2);
        float scale = times(anyHalf(b), s), least = times(anyHalf(b + 2), m);
#pragma unroll
        for (int k = 0; k < 8; k++) x[k] = __fsub_rn(times(scale, (int)(codes >> 8 * k) & 15), least);
    }
};

using Weight = BlockWeight<Code>;
