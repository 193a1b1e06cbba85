#include "codecs/gguf.h"

struct Code {
    static const int block = 256, bytes = 144;

    __device__ __forceinline__ static float at(const u8 *b, int i) {
        int s, m;
        pairK(b + 4, i >> 5, s, m);
        return affine(anyHalf(b), s, nibbleK(b + 16, i), anyHalf(b + 2), m);
    }
};

using Weight = BlockWeight<Code>;
