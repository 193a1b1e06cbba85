#include "codecs/gguf.h"

struct Code : Singly<Code> {
    static const int block = 256, bytes = 110;

    __device__ __forceinline__ static float at(const u8 *b, int i) {
        int j = i >> 4, s = (b[96 + (j & 7)] >> (j >> 3 << 2) & 15) | (b[104 + (j & 3)] >> (j >> 2 << 1) & 3) << 4;
        return times(times(anyHalf(b + 108), s - 32), twoBits(b + 32, i) + (b[i & 31] >> (i >> 5) & 1) * 4 - 4);
    }
};

using Weight = BlockWeight<Code>;
