#include "codecs/gguf.h"

struct Code {
    static const int block = 256, bytes = 210;

    __device__ __forceinline__ static float at(const u8 *b, int i) {
        int h = i >> 7, g = i >> 5 & 3, l = i & 31, q = (b[64 * h + 32 * (g & 1) + l] >> (g >> 1 << 2) & 15) | (b[128 + 32 * h + l] >> (2 * g) & 3) << 4;
        return times(times(anyHalf(b + 208), (signed char)b[192 + (i >> 4)]), q - 32);
    }
};

using Weight = BlockWeight<Code>;
