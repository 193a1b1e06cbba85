#include "codecs/gguf.h"

struct Code {
    static const int block = 32, bytes = 34;

    __device__ __forceinline__ static float at(const u8 *b, int i) {
        return times(anyHalf(b), (signed char)b[2 + i]);
    }

    __device__ __forceinline__ static void eight(const u8 *b, int i, float (&x)[8]) {
        u64 codes = evenBytes(b + 2 + i);
        float scale = anyHalf(b);
#pragma unroll
        for (int k = 0; k < 8; k++) x[k] = times(scale, (signed char)(codes >> 8 * k));
    }
};

using Weight = BlockWeight<Code>;
