#include "codecs/gguf.h"

struct Code {
    static const int block = 256, bytes = 176;

    __device__ __forceinline__ static float at(const u8 *b, int i) {
        int s, m;
        pairK(b + 4, i >> 5, s, m);
        return affine(anyHalf(b), s, nibbleK(b + 48, i) | (b[16 + (i & 31)] >> (i >> 5) & 1) << 4, anyHalf(b + 2), m);
    }
};

using Weight = BlockWeight<Code>;
