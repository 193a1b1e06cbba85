#include "codecs/gguf.h"

struct Code {
    static const int block = 32, bytes = 18;

    __device__ __forceinline__ static float at(const u8 *b, int i) {
        return times(anyHalf(b), nibble(b + 2, i) - 8);
    }

    __device__ __forceinline__ static void eight(const u8 *b, int i, float (&x)[8]) {
        u64 codes = evenBytes(b + 2 + (i & 15)) >> (i >> 4 << 2);
        float scale = anyHalf(b);
#pragma unroll
        for (int k = 0; k < 8; k++) x[k] = times(scale, ((int)(codes >> 8 * k) & 15) - 8);
    }
};

using Weight = BlockWeight<Code>;
